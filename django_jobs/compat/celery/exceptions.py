"""Celery's exceptions.  Those that end an attempt are exceptions of django_jobs, so workers need no translation."""

from __future__ import annotations

import builtins
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobs.compat.celery.missing import EXCEPTIONS, refuse
from django_jobs.exceptions import Discard, Fail, JobsError, StoreUnavailable
from django_jobs.exceptions import Retry as RetryJob

__all__ = [
    "CeleryError", "ChordError", "Ignore", "ImproperlyConfigured", "MaxRetriesExceededError", "NotRegistered",
    "OperationalError", "Reject", "Retry", "SoftTimeLimitExceeded", "TaskError", "TaskPredicate", "TaskRevokedError",
    "TimeLimitExceeded", "TimeoutError", "Unsupported", "WorkerLostError",
]  # fmt: skip

#: What `delay` raises if the store cannot be reached.
OperationalError = StoreUnavailable


class Unsupported(JobsError, TypeError):
    """Celery has this, and the compatibility layer has not.  The text says what to write instead."""


class CeleryError(Exception):
    """Base class of Celery's errors."""


class TaskPredicate(CeleryError):
    """Base class of what a task raises to say what happens next."""


class Retry(RetryJob, TaskPredicate):
    """The task runs again.  `when`: seconds, or a datetime."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float | datetime | None = None,
        is_eager: bool = False,
        sig: Any = None,
        *,
        args: Any = None,
        kwargs: Any = None,
        queue: str | None = None,
    ) -> None:
        self.message, self.exc, self.when, self.is_eager, self.sig = message, exc, when, is_eager, sig
        delay = max(0.0, (when - datetime.now(UTC)).total_seconds()) if isinstance(when, datetime) else when
        shown = f"at {when}" if isinstance(when, datetime) else f"in {when} s"
        message = message or f"Retry {shown}" + (f": {exc!r}" if exc is not None else "")
        super().__init__(message, in_=delay, args=args, kwargs=kwargs, queue=queue)
        if isinstance(exc, BaseException):
            self.__cause__ = exc  # so that it is what the log of the attempt has


class Ignore(Discard, TaskPredicate):
    """The task ends without a result.  Its job is cancelled."""


class Reject(Fail, TaskPredicate):
    """The task is not done here.  Its job is dead; with `requeue`, it goes back to its queue, uncounted."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason, self.requeue = reason, requeue
        super().__init__(None if reason is None else str(reason))


class TaskError(CeleryError):
    """Base class of errors about tasks."""


class MaxRetriesExceededError(TaskError):
    """`self.retry()` was called after the last retry, without `exc`."""

    def __init__(self, *args: Any, task_args: Any = (), task_kwargs: Any = None) -> None:
        self.task_args, self.task_kwargs = task_args, task_kwargs or {}
        super().__init__(*args)


class NotRegistered(KeyError, TaskError):
    """No task of this name is registered in this process."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TimeoutError(TaskError, builtins.TimeoutError):
    """The task has not ended in the time that `get` was given."""


class TaskRevokedError(TaskError):
    """The task was revoked, has expired, or has ended with Ignore, so it has no result."""


class ChordError(TaskError):
    """A task of a chord's header has not succeeded, so its body does not run."""


class TimeLimitExceeded(Exception):
    """The task ran longer than its time_limit.  `get` raises it; the task itself is ended and sees nothing."""


class SoftTimeLimitExceeded(Exception):
    """The task has run longer than its soft_time_limit.  It is raised inside the task."""


class WorkerLostError(Exception):
    """The process of the worker was lost while the task ran."""


def __getattr__(name: str) -> Any:
    return refuse(__name__, name, EXCEPTIONS)
