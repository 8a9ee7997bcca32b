"""A model without a table, for the admin's menu entry and the permissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class NoRows(models.Manager["Dashboard"]):
    """A manager that finds nothing, so that dumpdata and relations never query the missing table."""

    def get_queryset(self) -> models.QuerySet[Dashboard]:
        return super().get_queryset().none()


class Dashboard(models.Model):
    """A model that is never stored."""

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions: ClassVar[Sequence[str]] = ()
        verbose_name = _("jobs")
        verbose_name_plural = _("jobs")
        permissions = [
            ("view_jobs", _("Can see jobs, queues and workers")),
            ("view_arguments", _("Can see arguments and results of jobs")),
            ("retry_jobs", _("Can retry jobs and edit their arguments")),
            ("enqueue_jobs", _("Can enqueue jobs")),
            ("delete_jobs", _("Can delete, cancel and kill jobs")),
            ("pause_queues", _("Can pause and resume queues and job types")),
            ("run_schedules", _("Can run and pause schedules")),
            ("manage_workers", _("Can stop workers")),
        ]
