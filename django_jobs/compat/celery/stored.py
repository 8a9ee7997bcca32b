"""What the store has of a task, in Celery's words."""

from __future__ import annotations

import json
import sys
from typing import Any

from django_jobs.compat.celery.exceptions import TaskRevokedError, TimeLimitExceeded, WorkerLostError
from django_jobs.core.context import current_job
from django_jobs.core.values import State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import JobFailed
from django_jobs.formatting import counted
from django_jobs.stores import get_store
from django_jobs.workflows import engine

#: State of a job → Celery's.
STATES = {
    State.RUNNING: "STARTED",
    State.RETRY: "RETRY",
    State.SUCCEEDED: "SUCCESS",
    State.DEAD: "FAILURE",
    State.CANCELLED: "REVOKED",
    State.EXPIRED: "REVOKED",
}
READY = frozenset({"SUCCESS", "FAILURE", "REVOKED"})
_ERRORS: dict[str, type[Exception]] = {"timeout": TimeLimitExceeded, "worker_lost": WorkerLostError}


def message_for(state: str, meta: Any) -> str:
    """Return what `self.update_state` stores as a check-in.  Raises ValueError for a message that is too long."""
    text = json.dumps({"state": state, "meta": meta}, default=str, ensure_ascii=True)
    if len(text) > 1000:
        raise ValueError(
            f"update_state(meta=…): {counted(len(text), 'byte')} of JSON; at most 1000 are kept. Store it elsewhere."
        )
    return text


def said_in(job: JobHandle) -> dict[str, Any] | None:
    """Return what `self.update_state` said in the attempt that runs; None if it said nothing."""
    if job.state != State.RUNNING or not job.checkin:
        return None
    try:
        said = json.loads(job.checkin["message"])
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.keys() == {"state", "meta"} else None


def error_of(job: JobHandle) -> Exception | None:
    """Return the error of the last attempt, of its own class if this process has imported that."""
    if job.state in (State.CANCELLED, State.EXPIRED):
        return TaskRevokedError(f"The task {job.id} is {job.state}.")
    if not job.attempts:
        return None
    last = job.attempts[-1]
    module, _, name = last.error_type.rpartition(".")
    kind: Any = _ERRORS.get(last.outcome) or getattr(sys.modules.get(module), name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(last.error)
        except Exception:  # its class wants other arguments
            return JobFailed(job.error)
    return JobFailed(job.error)


def step_of(id: str) -> tuple[str, str]:
    """Return the workflow of the task with that id, and the number of its step; "" if it is no step."""
    workflow, _, step = id.rpartition(".")
    return (workflow, step) if workflow.startswith("w") and step.isdigit() else ("", "")


def drop(id: str) -> bool:
    """Revoke a step whose turn has not come.  Returns False if it is none."""
    workflow, step = step_of(id)
    return bool(workflow) and engine.drop(get_store(), workflow, step)


def is_dropped(id: str) -> bool:
    """Return whether it is a step that was revoked before its turn came."""
    workflow, step = step_of(id)
    return bool(workflow) and engine.is_dropped(get_store(), workflow, step)


def refuse_in_task() -> None:
    """Raise RuntimeError inside a job, as Celery does inside a task."""
    if current_job() is not None:
        raise RuntimeError(
            "Never call result.get() within a task! It would wait on a thread that tasks need. Use a chain or a chord."
        )
