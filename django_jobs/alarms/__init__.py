"""Alarms: what is wrong now, since when, and what could not be checked.  Shared by admin, commands, API and metrics."""

from __future__ import annotations

from django_jobs.alarms.facts import Facts, Unchecked, measure
from django_jobs.alarms.report import Report, check
from django_jobs.alarms.rules import Alarm, Severity, alarms_of
from django_jobs.alarms.texts import link_of, subject_of, text_of

__all__ = [
    "Alarm",
    "Facts",
    "Report",
    "Severity",
    "Unchecked",
    "alarms_of",
    "check",
    "link_of",
    "measure",
    "subject_of",
    "text_of",
]
