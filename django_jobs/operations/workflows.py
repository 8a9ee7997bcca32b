"""What people do to whole workflows and batches."""

from __future__ import annotations

from django_jobs.exceptions import JobMoved
from django_jobs.workflows.handle import get_workflow


def cancel_workflow(id: str) -> bool:
    """Cancel what waits in it, and ask what runs to stop.  Returns False if it has ended before.

    Raises WorkflowNotFound or a StoreError; after StoreUnavailable it is completed by maintenance, or not begun."""
    handle = get_workflow(id)
    if handle.info.ended_at is not None:
        return False
    handle.cancel()
    return True


def retry_workflow(id: str) -> int:
    """Queue again the jobs of its steps that are dead, expired or cancelled, so that it goes on.  Returns how many
    moved: jobs that are delivered at most once and may have started stay, and deleted ones are gone.

    Raises WorkflowNotFound, JobMoved if it was cancelled, or a StoreError."""
    handle = get_workflow(id)
    if handle.state == "cancelled":
        raise JobMoved(f"Workflow {id} was cancelled, so nothing in it starts any more. Enqueue it again.")
    return handle.retry()
