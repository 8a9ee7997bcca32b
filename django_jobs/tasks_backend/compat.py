"""The tasks framework: Django's own from 6.0 on, before that the django-tasks backport.  Only this module chooses."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    django_has_it = find_spec("django.tasks") is not None
    framework = "django.tasks" if django_has_it else "django_tasks"

    def _from(module: str, name: str) -> Any:
        return getattr(import_module(module), name)

    task_backends = _from(framework, "task_backends")
    BaseTaskBackend = _from(f"{framework}.backends.base", "BaseTaskBackend")
    Task = _from(f"{framework}.base", "Task")
    TaskContext = _from(f"{framework}.base", "TaskContext")
    TaskError = _from(f"{framework}.base", "TaskError")
    TaskResult = _from(f"{framework}.base", "TaskResult")
    TaskResultStatus = _from(f"{framework}.base", "TaskResultStatus")
    TaskResultDoesNotExist = _from(f"{framework}.exceptions", "TaskResultDoesNotExist")
    task_enqueued = _from(f"{framework}.signals", "task_enqueued")
    task_finished = _from(f"{framework}.signals", "task_finished")
    task_started = _from(f"{framework}.signals", "task_started")
    normalize_json = _from("django.utils.json" if django_has_it else "django_tasks.utils", "normalize_json")

__all__ = [
    "BaseTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
