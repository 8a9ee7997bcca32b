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
    from django_jobs.core.placeholders import PREVIOUS
    from django_jobs.core.values import State
    from django_jobs.enqueueing.decorator import JobFunction, job
    from django_jobs.enqueueing.handle import JobHandle, aget_job, get_job
    from django_jobs.enqueueing.methods import aenqueue, enqueue
    from django_jobs.enqueueing.signature import Signature
    from django_jobs.exceptions import (
        BatchClosed,
        Discard,
        DuplicateJob,
        Fail,
        InvalidArguments,
        InvalidJob,
        InvalidWorkflow,
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
        TooManySteps,
        UnknownJob,
        UnknownQueue,
        WorkflowNotFound,
    )
    from django_jobs.serialization.results import MissingResult
    from django_jobs.workflows.batch import Batch, current_batch
    from django_jobs.workflows.canvas import chain, group
    from django_jobs.workflows.graph import Workflow
    from django_jobs.workflows.handle import WorkflowHandle, aget_workflow, get_workflow

__version__ = "0.2.0"
__all__ = [
    "PREVIOUS",
    "Batch",
    "BatchClosed",
    "Discard",
    "DuplicateJob",
    "Fail",
    "InvalidArguments",
    "InvalidJob",
    "InvalidWorkflow",
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
    "Signature",
    "Snooze",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TooManySteps",
    "UnknownJob",
    "UnknownQueue",
    "Workflow",
    "WorkflowHandle",
    "WorkflowNotFound",
    "aenqueue",
    "aget_job",
    "aget_workflow",
    "chain",
    "current_batch",
    "current_job",
    "enqueue",
    "get_job",
    "get_workflow",
    "group",
    "job",
]

#: The module of each name, imported at first use: `import django_jobs` must be cheap and need no settings.
_HOMES = {
    "django_jobs.core.context": ("JobContext", "RunningJob", "current_job"),
    "django_jobs.core.placeholders": ("PREVIOUS",),
    "django_jobs.core.values": ("State",),
    "django_jobs.enqueueing.handle": ("JobHandle", "aget_job", "get_job"),
    "django_jobs.enqueueing.decorator": ("JobFunction", "job"),
    "django_jobs.enqueueing.methods": ("aenqueue", "enqueue"),
    "django_jobs.enqueueing.signature": ("Signature",),
    "django_jobs.serialization.results": ("MissingResult",),
    "django_jobs.workflows.batch": ("Batch", "current_batch"),
    "django_jobs.workflows.canvas": ("chain", "group"),
    "django_jobs.workflows.graph": ("Workflow",),
    "django_jobs.workflows.handle": ("WorkflowHandle", "aget_workflow", "get_workflow"),
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
