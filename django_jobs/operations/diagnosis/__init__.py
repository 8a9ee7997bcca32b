"""Findings: what is wrong now, since when, and what could not be checked.  Admin, commands, API and metrics show them.

Facts are measured once (facts.py and what it calls); rules are pure functions from facts to findings."""

from __future__ import annotations

from django_jobs.operations.diagnosis.acknowledging import acknowledge, withdraw
from django_jobs.operations.diagnosis.facts import Facts, ServerFacts, look_at_server, measure
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.operations.diagnosis.lines import CheckLine, all_lines, line_of, server_lines
from django_jobs.operations.diagnosis.report import (
    Report,
    acknowledged_text,
    check,
    findings_of,
    old_name,
    told,
)
from django_jobs.operations.diagnosis.why import Why, why
from django_jobs.operations.diagnosis.workers import problems_of, too_slow
