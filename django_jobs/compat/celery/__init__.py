"""Celery's names on django_jobs: `from django_jobs.compat.celery import shared_task`.

With "django_jobs.compat.celery" in INSTALLED_APPS, each app's tasks.py is found, and CELERY_BEAT_SCHEDULE runs.
A name that is not here raises ImportError with what to write instead.  docs/howto/from-celery.md has the differences.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_jobs.compat.celery.missing import NAMES, refuse

if TYPE_CHECKING:
    from logging import getLogger as get_task_logger

    from django_jobs.compat.celery.app import Celery, send_task, shared_task
    from django_jobs.compat.celery.canvas import Signature, chain, chord, chunks, group, maybe_signature, signature
    from django_jobs.compat.celery.conf import Conf
    from django_jobs.compat.celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
    from django_jobs.compat.celery.exceptions import OperationalError as OperationalError
    from django_jobs.compat.celery.exceptions import SoftTimeLimitExceeded as SoftTimeLimitExceeded
    from django_jobs.compat.celery.exceptions import Unsupported as Unsupported
    from django_jobs.compat.celery.request import Context, CurrentTask
    from django_jobs.compat.celery.results import AsyncResult, EagerResult, GroupResult
    from django_jobs.compat.celery.schedules import crontab, schedule
    from django_jobs.compat.celery.signals import (
        after_task_publish,
        before_task_publish,
        task_failure,
        task_postrun,
        task_prerun,
        task_retry,
        task_revoked,
        task_success,
        worker_process_init,
        worker_process_shutdown,
    )
    from django_jobs.compat.celery.task import Task

    current_task: CurrentTask

__all__ = [
    "AsyncResult", "Celery", "Conf", "Context", "EagerResult", "GroupResult", "Ignore", "MaxRetriesExceededError",
    "OperationalError", "Reject", "Retry", "Signature", "SoftTimeLimitExceeded", "Task", "Unsupported",
    "after_task_publish", "before_task_publish", "chain", "chord", "chunks", "crontab", "current_task",
    "get_task_logger", "group", "maybe_signature", "schedule", "send_task", "shared_task", "signature", "task_failure",
    "task_postrun", "task_prerun", "task_retry", "task_revoked", "task_success", "uuid", "worker_process_init",
    "worker_process_shutdown",
]  # fmt: skip

#: The module of each name, imported at first use: as an app, this package is imported before Django is set up.
_HOMES = {
    "app": ("Celery", "send_task", "shared_task"),
    "canvas": ("Signature", "chain", "chord", "chunks", "group", "maybe_signature", "signature"),
    "conf": ("Conf",),
    "exceptions": (
        "Ignore", "MaxRetriesExceededError", "OperationalError", "Reject", "Retry", "SoftTimeLimitExceeded",
        "Unsupported",
    ),
    "request": ("Context", "CurrentTask"),
    "results": ("AsyncResult", "EagerResult", "GroupResult"),
    "schedules": ("crontab", "schedule"),
    "signals": (
        "after_task_publish", "before_task_publish", "task_failure", "task_postrun", "task_prerun", "task_retry",
        "task_revoked", "task_success", "worker_process_init", "worker_process_shutdown",
    ),
    "task": ("Task",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def uuid() -> str:
    """Return a new id for `task_id`."""
    from uuid import uuid4

    return str(uuid4())


def __getattr__(name: str) -> Any:
    value: Any
    if name == "current_task":
        value = import_module("django_jobs.compat.celery.request").CurrentTask()
    elif name == "get_task_logger":
        from logging import getLogger as value
    elif name in _HOME:
        value = getattr(import_module(f"django_jobs.compat.celery.{_HOME[name]}"), name)
    else:
        refuse(__name__, name, NAMES)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
