"""Jobs that join a batch: it is told of them before they are sent, and after their ids are reserved for their queue.

A crash between the two leaves the batch with jobs that do not exist; the check of each workflow finds them
(workflows/engine.py).  The other order could end a batch before its last job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from django_jobs.core.values import Added, State
from django_jobs.enqueueing.request import EncodedJob, JoinableBatch
from django_jobs.exceptions import BatchClosed, TooManySteps
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores import get_store
from django_jobs.stores.values.workflows import MOST_JOBS

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: The batch that jobs join which are enqueued here; None = none.
current: ContextVar[JoinableBatch | None] = ContextVar("django_jobs_batch", default=None)


def join(store: Store, queue: str, members: Sequence[EncodedJob]) -> None:
    """Register these jobs with their batches.  Raises BatchClosed or TooManySteps: then none of them may be sent."""
    for batch, ids in _by_batch(members):
        answer = store.join_batch(batch.id, queue, ids, batch.new_fields())
        if answer == "full":
            raise TooManySteps(f"Batch {batch.id} has {MOST_JOBS} jobs, and no batch may have more. Make another.")
        if answer:
            raise BatchClosed(f"Batch {batch.id} {_WHY[answer]}: no job can be added to it. Make another batch.")
    if ACTIVE:
        crashpoint("batch.joined")


_WHY = {"gone": "does not exist (any more)", "done": "is done", "cancelled": "was cancelled"}


def leave(store: Store, queue: str, members: Sequence[EncodedJob], answers: Sequence[Added]) -> None:
    """Take back those that were not added: another job has their unique key, or the queue is full."""
    refused = [
        each
        for each, answer in zip(members, answers, strict=True)
        if each.request.batch is not None and answer not in (Added.ADDED, Added.EXISTS)
    ]
    for batch, ids in _by_batch(refused):
        store.leave_batch(batch.id, queue, ids)


def check_given_up(each: EncodedJob) -> None:
    """Raise BatchClosed if the batch has counted this job, whose id is known, as deleted, because this process stood
    still for so long between the two.  The job was not enqueued, and never will be under this id."""
    if each.request.batch is None:
        return
    known = get_store().remembered(each.handle.queue, each.handle.id)
    if known is not None and known.is_void:
        each.handle.state = State.CANCELLED
        raise BatchClosed(
            f"Batch {each.request.batch.id} gave up job {each.handle.id}, which had not come for a minute. "
            "The job was not enqueued. Enqueue it again, under another id if you chose this one."
        )


def _by_batch(members: Iterable[EncodedJob]) -> list[tuple[JoinableBatch, list[str]]]:
    found: dict[str, tuple[JoinableBatch, list[str]]] = {}
    for each in members:
        batch = each.request.batch
        if batch is not None:
            found.setdefault(batch.id, (batch, []))[1].append(each.handle.id)
    return list(found.values())
