from __future__ import annotations

import os

from django.apps import AppConfig


class WorkerProject(AppConfig):
    name = "tests.integration.worker_project"

    def ready(self) -> None:
        if how := os.environ.get("WORKER_RECEIVERS"):
            from tests.integration.worker_project.receivers import listen

            listen(*how.split(":", 1))
