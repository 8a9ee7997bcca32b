"""Django's signals task_started and task_finished, sent together with the job signals.

They are sent after the event, by the process that ended the task: the one that ran it, its parent at a time limit,
another worker that recovered it, or a person's.  Receivers do not delay a task.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from django_jobs.events.signal_events import SignalEvent
from django_jobs.exceptions import Discard, JobFailed
from django_jobs.stores import get_store
from django_jobs.tasks_backend.compat import (
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
    task_started,
)
from django_jobs.tasks_backend.results import error_of, result_of, result_of_running
from django_jobs.tasks_backend.running import BEGAN, RETURNED, attempts_before
from django_jobs.tasks_backend.task import TaskDefinition

STARTED, SUCCEEDED = "job_started", "job_succeeded"


def tell(definition: TaskDefinition, signal_event: SignalEvent) -> None:
    """Send Django's signal for a job signal."""
    sender = type(definition.task.get_backend())
    if signal_event.signal == STARTED:
        if signal_event.job is not None:
            job = signal_event.job
            began = result_of_running(definition.task, job, job.args, job.kwargs, attempts_before(job))
            task_started.send_robust(sender=sender, task_result=began)
        return
    if (result := _ended(signal_event)) is None:
        return
    if result.status != TaskResultStatus.FAILED:
        task_finished.send_robust(sender=sender, task_result=result)
        return
    error = signal_event.more.get("error")
    if not isinstance(error, BaseException):
        error = JobFailed(str(error or "The task was not started in time."))
    stack = error.__traceback__
    try:
        # Django's own receiver logs the exception that is currently handled.
        raise error
    except BaseException:
        task_finished.send_robust(sender=sender, task_result=result)
    finally:
        error.with_traceback(stack)


def _ended(signal_event: SignalEvent) -> TaskResult[Any, Any] | None:
    """Return the result of the task that ended; None if it has left the store or is not a task."""
    began: TaskResult[Any, Any] | None = (
        None if signal_event.job is None else getattr(signal_event.job.context, BEGAN, None)
    )
    if signal_event.job is None or began is None:
        return _stored(signal_event)
    from django.utils import timezone

    result, succeeded = copy(began), signal_event.signal == SUCCEEDED
    error = signal_event.more.get("error")
    fields: dict[str, Any] = {
        "status": TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED,
        "finished_at": timezone.now(),
        "errors": [*began.errors],
    }
    if succeeded:
        fields["_return_value"] = getattr(signal_event.job.context, RETURNED, None)
    elif isinstance(error, BaseException) and not isinstance(error, Discard):
        fields["errors"].append(error_of(error))
    for name, value in fields.items():
        # Django's TaskResult is a frozen dataclass; its own backends write the fields like this, too.
        object.__setattr__(result, name, value)
    return result


def _stored(signal_event: SignalEvent) -> TaskResult[Any, Any] | None:
    info = get_store().get(signal_event.queue, signal_event.id)
    try:
        return None if info is None else result_of(info)
    except TaskResultDoesNotExist:
        return None
