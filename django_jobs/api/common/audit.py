"""Entries of the audit log for what callers of the API do to jobs, queues, schedules, workflows and job types."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from django_jobs.api.common.principal import caller
from django_jobs.models import audit


def log(request: HttpRequest, verb: str, kind: audit.ObjectKind, subject: str, **details: Any) -> None:
    """Write an entry in the name of the caller.  `details`: see `audit.Act`."""
    audit.record(caller(request).name, audit.Source.HTTP, audit.Act(verb, kind, subject, details))


def log_job(request: HttpRequest, verb: str, queue: str, id: str, **details: Any) -> None:
    """Write an entry about one job that was changed."""
    log(request, verb, audit.ObjectKind.JOB, queue, ids=[[queue, id]], **{"moved": 1, **details})
