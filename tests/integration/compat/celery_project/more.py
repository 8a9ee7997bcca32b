"""Tasks in a module that CELERY_IMPORTS names."""

from __future__ import annotations

from typing import Any

from django_jobs.compat.celery import Task, shared_task
from tests.integration.compat.celery_project.tasks import note


class Noting(Task):
    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"failed {type(exc).__name__}")


@shared_task(bind=True, base=Noting, name="compat.retried", max_retries=1, default_retry_delay=0)
def retried(self: Task) -> None:
    note(f"try {self.request.retries}")
    try:
        raise KeyError("x")
    except KeyError as error:
        self.retry(exc=error)
