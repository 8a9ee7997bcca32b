"""The app: finds jobs.py modules, registers checks."""

from __future__ import annotations

import sys

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from django_jobs.runtime import early_orders

if sys.argv[1:2] == ["runworkers"]:
    early_orders.note_them()


class DjangoJobsConfig(AppConfig):
    name = "django_jobs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_jobs import remote
        from django_jobs.checks import register_checks
        from django_jobs.core import discovery, registry
        from django_jobs.enqueueing import captures
        from django_jobs.models.saved_filter import follow_users

        register_checks()
        registry.add_resolver(remote.definition_of, remote.type_names, last=True)
        discovery.discover()
        captures.follow_settings()
        follow_users()
