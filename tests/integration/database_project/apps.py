from __future__ import annotations

import os

from django.apps import AppConfig

from django_jobs.signals import job_succeeded


class DatabaseProject(AppConfig):
    name = "tests.integration.database_project"

    def ready(self) -> None:
        if os.environ.get("TEST_RECEIVERS"):
            from tests.integration.database_project.receivers import write_down

            job_succeeded.connect(write_down)
