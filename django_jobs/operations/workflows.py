"""What people do to whole workflows and batches."""

from __future__ import annotations

from django_jobs import browse
from django_jobs.exceptions import JobMoved
from django_jobs.operations.actions import may_have_started, revive
from django_jobs.stores import get_store
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
    those that moved: jobs that are delivered at most once and may have started stay, and deleted ones are gone.

    Raises WorkflowNotFound, JobMoved if it was cancelled, or a StoreError."""
    handle = get_workflow(id)
    if handle.state == "cancelled":
        raise JobMoved(f"Workflow {id} was cancelled, so nothing in it starts any more. Enqueue it again.")
    return engine.retry(handle.store, id)


def restarted_steps(id: str) -> list[str]:
    """Return the ids of jobs that had ended without success, were queued again, and have not ended since.  Raises a
    StoreError."""
    return engine.restarted(get_store(), id)


def held_steps(id: str) -> list[tuple[str, str]]:
    """Return the queue and the job id of each step that `retry_workflow` leaves as it is: its job has ended without
    success, may have been started, and is delivered at most once.  Raises WorkflowNotFound or a StoreError."""
    jobs = browse.jobs_of(browse.stopping_steps(id, limit=browse.workflow(id).total))
    return [(info.queue, info.id) for info in jobs.values() if may_have_started(info)]


def retry_held(id: str) -> int:
    """Queue again what `retry_workflow` leaves as it is: find out first what these jobs did, because they do it again.
    Returns how many moved.  Raises WorkflowNotFound or a StoreError."""
    by_queue: dict[str, list[str]] = {}
    for queue, job_id in held_steps(id):
        by_queue.setdefault(queue, []).append(job_id)
    moved = 0
    for queue, ids in by_queue.items():
        moved += len(revive(queue, ids, start_again=True).moved)
        engine.advance(get_store(), queue)
    return moved
