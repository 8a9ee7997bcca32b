"""What people do to whole workflows and batches."""

from __future__ import annotations

from typing import NamedTuple

from django_jobs import browse
from django_jobs.exceptions import JobMoved
from django_jobs.operations.actions import revive
from django_jobs.operations.staying import may_have_started
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import grouped
from django_jobs.workflows import engine
from django_jobs.workflows.handle import get_workflow


def cancel_workflow(id: str) -> bool:
    """Cancel what waits in it, and ask what runs to stop.  Returns False if it has succeeded or was cancelled before.

    Raises WorkflowNotFound or a StoreError; after StoreUnavailable it is completed by maintenance, or not begun."""
    handle = get_workflow(id)
    if not handle.info.may_be_cancelled:
        return False
    handle.cancel()
    return True


def retry_workflow(id: str) -> list[str]:
    """Queue again the jobs of its steps that are dead, expired or cancelled, so that it goes on.  Returns the ids of
    those that moved: jobs that are delivered at most once and may have started stay, and so do those whose unique key
    another job holds; deleted ones are gone.

    Raises WorkflowNotFound, JobMoved if it was cancelled, or a StoreError."""
    handle = get_workflow(id)
    if handle.info.state == "cancelled":
        raise JobMoved(f"Workflow {id} was cancelled, so nothing in it starts any more. Enqueue it again.")
    return engine.retry(handle.store, id)


def restarted_steps(id: str) -> list[str]:
    """Return the ids of jobs that had ended without success, were queued again, and have not ended since.  Raises a
    StoreError."""
    return engine.restarted(get_store(), id)


class StayingSteps(NamedTuple):
    """Steps that ended without success, and that `retry_workflow` leaves as they are."""

    #: queue and job id of those that may have been started, and are delivered at most once.
    held: list[tuple[str, str]]
    #: job id of those whose unique key another job holds → the id of that job.
    taken: dict[str, str]


def staying_steps(id: str, ended_by: int | None = None) -> StayingSteps:
    """Return the steps that `retry_workflow` leaves as they are, of those that had ended by then (ms).  Raises
    WorkflowNotFound or a StoreError."""
    jobs = browse.jobs_of(browse.stopping_steps(id, limit=browse.workflow(id).total)).values()
    stopped = [info for info in jobs if ended_by is None or info.at <= ended_by]
    by_queue: dict[str, dict[str, bytes]] = {}
    for info in stopped:
        by_queue.setdefault(info.queue, {})[info.id] = info.record
    found = [get_store().key_holders(queue, records) for queue, records in by_queue.items()]
    held = [(info.queue, info.id) for info in stopped if may_have_started(info)]
    return StayingSteps(held, {job_id: holder for taken in found for job_id, holder in taken.items()})


def retry_held(id: str, ended_by: int | None = None) -> int:
    """Queue again what `retry_workflow` leaves as it is: find out first what these jobs did, because they do it again.
    `ended_by`: only those that had ended by then (ms), when somebody looked at them.  Returns how many moved.  Raises
    WorkflowNotFound or a StoreError."""
    moved = 0
    for queue, ids in grouped(staying_steps(id, ended_by).held).items():
        moved += len(revive(queue, ids, start_again=True).moved)
        engine.advance(get_store(), queue)
    return moved
