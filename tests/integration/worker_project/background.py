"""Tasks of Django's framework, in a module that MODULES names, on a backend of the project's own."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

try:
    from django.tasks import task
    from django.tasks.signals import task_finished
except ImportError:
    from django_tasks import task
    from django_tasks.signals import task_finished

from django.conf import settings

from django_jobs.tasks_backend import JobsBackend


class Backend(JobsBackend):
    """As a project may extend ours."""


@task(takes_context=True)
def end(context: Any, how: str) -> str:
    """Return, take too long, or die."""
    if how == "sleep":
        time.sleep(60)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "twice" and context.attempt == 1:
        raise ValueError("again")
    return how


def _note(sender: Any, task_result: Any, **_: Any) -> None:
    from tests.survival.project.jobs import ledger

    errors = [error.exception_class_path.rpartition(".")[2] for error in task_result.errors]
    ledger.write("finished", task_result.id, 0, f"{sender.__name__}/{task_result.status}/{','.join(errors)}")


if hasattr(settings, "LEDGER"):  # in a worker
    task_finished.connect(_note)
