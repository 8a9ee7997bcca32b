"""Alarms: what is wrong now, since when, and what could not be checked.  Shared by admin, commands, API and metrics."""

from __future__ import annotations

from django_jobs.alarms.facts import Facts, Unchecked, measure
from django_jobs.alarms.report import Report, check
from django_jobs.alarms.rules import Alarm, Severity, alarms_of
from django_jobs.alarms.server import (
    ERRORS,
    Finding,
    Server,
    alarm_finding,
    all_findings,
    look_at_server,
    server_findings,
)
from django_jobs.alarms.texts import link_of, subject_of, text_of

__all__ = [
    "ERRORS",
    "Alarm",
    "Facts",
    "Finding",
    "Report",
    "Server",
    "Severity",
    "Unchecked",
    "alarm_finding",
    "alarms_of",
    "all_findings",
    "check",
    "link_of",
    "look_at_server",
    "measure",
    "server_findings",
    "subject_of",
    "text_of",
]
