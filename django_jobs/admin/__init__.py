"""The operations console inside Django's admin: its pages read through browse and act through operations."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from django_jobs.admin.models.api import ApiTokenAdmin, RemoteJobTypeAdmin
from django_jobs.admin.models.archive import ArchivedJobAdmin
from django_jobs.admin.models.dashboard import DashboardAdmin
from django_jobs.admin.models.outbox import OutboxEntryAdmin
from django_jobs.admin.models.schedules import ScheduleAdmin
from django_jobs.models import ApiToken, ArchivedJob, Dashboard, OutboxEntry, RemoteJobType, Schedule

__all__ = ["DashboardAdmin", "register"]


def register(site: AdminSite) -> None:
    """Add the console to an admin site of your own."""
    site.register(Dashboard, DashboardAdmin)
    site.register(ArchivedJob, ArchivedJobAdmin)
    site.register(OutboxEntry, OutboxEntryAdmin)
    site.register(ApiToken, ApiTokenAdmin)
    site.register(RemoteJobType, RemoteJobTypeAdmin)
    site.register(Schedule, ScheduleAdmin)


register(admin.site)
