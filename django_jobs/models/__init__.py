"""The few things that live in the database; jobs do not."""

from __future__ import annotations

from django_jobs.models.archive import ArchivedJob
from django_jobs.models.dashboard import Dashboard
from django_jobs.models.remote import RemoteJobType
from django_jobs.models.schedule import Schedule
from django_jobs.models.token import ApiToken

__all__ = ["ApiToken", "ArchivedJob", "Dashboard", "RemoteJobType", "Schedule"]
