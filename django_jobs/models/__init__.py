"""The few models in the database; jobs are not among them."""

from __future__ import annotations

from django_jobs.archive.models import ArchivedJob, ArchivedTag
from django_jobs.models.audit import AuditEntry
from django_jobs.models.dashboard import Dashboard
from django_jobs.models.job_row import JobRow
from django_jobs.models.saved_filter import SavedFilter
from django_jobs.models.token import ApiToken
from django_jobs.outbox.models import OutboxEntry
from django_jobs.remote.models import RemoteJobType
from django_jobs.schedules.models import Schedule

__all__ = [
    "ApiToken",
    "ArchivedJob",
    "ArchivedTag",
    "AuditEntry",
    "Dashboard",
    "JobRow",
    "OutboxEntry",
    "RemoteJobType",
    "SavedFilter",
    "Schedule",
]
