"""The app of the layer: each app's tasks.py is imported, and the schedule of beat runs."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class CeleryLayerConfig(AppConfig):
    name = "django_jobs.compat.celery"
    label = "django_jobs_celery"
    verbose_name = "Celery's names for background jobs"

    def ready(self) -> None:
        """Raises ImproperlyConfigured for a setting of Celery's that cannot be kept, Unsupported for a schedule."""
        from django_jobs.compat.celery.app import Celery
        from django_jobs.compat.celery.conf import conf
        from django_jobs.compat.celery.schedules import entries
        from django_jobs.schedules.sources import add_source

        conf.check()
        autodiscover_modules("tasks")
        for module in (*conf.imports, *conf.include):
            import_module(module)
        for app in Celery.every:
            app.finalize()
        entries()  # a wrong one is shown now
        add_source(entries)
