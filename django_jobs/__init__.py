"""Background jobs for Django on Redis.

from django_jobs import job

@job
def send_receipt(order_id): ...

send_receipt.enqueue(7)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.core.context import JobContext, RunningJob, current_job
    from django_jobs.core.values import State
    from django_jobs.enqueue.decorator import JobFunction, job
    from django_jobs.enqueue.handle import JobHandle, aget_job, get_job
    from django_jobs.exceptions import (
        Discard,
        DuplicateJob,
        Fail,
        InvalidArguments,
        InvalidJob,
        JobFailed,
        JobNotFound,
        JobsError,
        PayloadError,
        QueueFull,
        Retry,
        Snooze,
        StoreError,
        StoreFull,
        StoreUnavailable,
        UnknownJob,
        UnknownQueue,
    )
    from django_jobs.serialization.results import MissingResult

__version__ = "0.1.0"
__all__ = [
    "Discard",
    "DuplicateJob",
    "Fail",
    "InvalidArguments",
    "InvalidJob",
    "JobContext",
    "JobFailed",
    "JobFunction",
    "JobHandle",
    "JobNotFound",
    "JobsError",
    "MissingResult",
    "PayloadError",
    "QueueFull",
    "Retry",
    "RunningJob",
    "Snooze",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownJob",
    "UnknownQueue",
    "aget_job",
    "current_job",
    "get_job",
    "job",
]

#: The module of each name, imported at first use: `import django_jobs` must be cheap and need no settings.
_HOMES = {
    "django_jobs.core.context": ("JobContext", "RunningJob", "current_job"),
    "django_jobs.core.values": ("State",),
    "django_jobs.enqueue.handle": ("JobHandle", "aget_job", "get_job"),
    "django_jobs.enqueue.decorator": ("JobFunction", "job"),
    "django_jobs.serialization.results": ("MissingResult",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'django_jobs' has no attribute {name!r}")
    home = _HOME.get(name, "django_jobs.exceptions")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
