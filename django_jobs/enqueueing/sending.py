"""Encoded jobs go to the store, and what it answers goes to their handles, to receivers and to callers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from django.utils.module_loading import import_string

from django_jobs.conf import QueueSettings, Settings
from django_jobs.core.values import Added, JobInfo
from django_jobs.enqueueing import membership
from django_jobs.enqueueing.handle import DEFERRED, DUPLICATE, FULL, JobHandle
from django_jobs.enqueueing.request import EncodedJob
from django_jobs.events.announce import announce_expired
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import DuplicateJob, QueueFull, StoreError, StoreMisconfigured, StoreUnavailable
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: Shortest and longest pause between two tries at a full queue, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25

Called = TypeVar("Called")


def send_one(ready: EncodedJob, settings: Settings) -> None:
    """Send one job, as every plain `enqueue()` does.  Raises QueueFull, DuplicateJob or a StoreError."""
    if settings.eager:
        run_eagerly(ready)
        return
    queue = settings_of(ready.handle.queue, settings)
    (answer,) = answers = ask(queue, [ready])
    note_all(queue.name, [ready], answers)
    if answer is not Added.ADDED:
        complain(queue, ready, answer, 0)
    if answer is Added.EXISTS:
        show_first(ready.handle)


# -- the call to the store -----------------------------------------------------------


def settings_of(name: str, settings: Settings) -> QueueSettings:
    """Return the settings of a queue.  They may have changed since the job was checked: it waited for its commit."""
    return settings.queues.get(name) or QueueSettings(name)


def ask(queue: QueueSettings, batch: list[EncodedJob]) -> list[Added]:
    """Ask the store until there is room, if the queue says so: the caller has to wait (ON_FULL "block")."""
    answers, patience = _ask_once(queue, batch), batch[0].request.block_timeout
    while Added.FULL in answers and end_late(queue.name):
        _ask_again(queue, batch, answers)
    if queue.on_full != "block" or Added.FULL not in answers or patience == 0:
        return answers
    deadline = None if patience is None else time.monotonic() + patience
    pause = _FIRST_PAUSE
    while Added.FULL in answers and (deadline is None or time.monotonic() < deadline):
        time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 2, _LONGEST_PAUSE)
        end_late(queue.name)
        _ask_again(queue, batch, answers)
    return answers


def _ask_again(queue: QueueSettings, batch: list[EncodedJob], answers: list[Added]) -> None:
    """Ask again for the jobs that found no room."""
    full = [i for i, answer in enumerate(answers) if answer is Added.FULL]
    for i, answer in zip(full, _ask_once(queue, [batch[i] for i in full]), strict=True):
        answers[i] = answer


def end_late(queue: str) -> bool:
    """End the jobs that are too late to start: they need no room.  Returns whether there may be room now."""
    store = get_store()
    try:
        late, more = store.expire(queue)
    except StoreMisconfigured:  # this user may only enqueue: maintenance ends such jobs soon
        return False
    if late:
        announce_expired(queue, late, store.now(), deliver_here)
    return bool(late) or more


def _ask_once(queue: QueueSettings, batch: list[EncodedJob], *, lost: int = 0) -> list[Added]:
    """Ask the store.  The handle of a job whose id another queue has shows that queue, and its answer is EXISTS.

    `lost`: how often the queue has answered MOVED for these ids of the caller's."""
    own = [each.new.id for each in batch if each.request.id is not None]
    homes = _told_of(batch, lambda: get_store().reserve(queue.name, own, lost=lost)) if own else {}
    for each in batch:
        if each.request.id is not None:
            each.handle.queue = homes.get(each.new.id, queue.name)
    here = [each for each in batch if each.handle.queue == queue.name]
    found = iter(_enqueue(get_store(), queue, here) if here else ())
    answers = [next(found) if each.handle.queue == queue.name else _join_elsewhere(each) for each in batch]
    again = [i for i, answer in enumerate(answers) if answer is Added.MOVED and batch[i].request.id is not None]
    if again:
        for i, answer in zip(again, _ask_once(queue, [batch[i] for i in again], lost=lost + 1), strict=True):
            answers[i] = answer
    return answers


def _join_elsewhere(each: EncodedJob) -> Added:
    """Another queue has the job with this id.  It becomes a job of the batch, as if it were in this queue."""
    if each.request.batch is not None:
        membership.join(get_store(), each.handle.queue, [each])
    return Added.EXISTS


def _enqueue(store: Store, queue: QueueSettings, batch: list[EncodedJob]) -> list[Added]:
    """Enqueue jobs whose ids no other queue has.  While a caller waits for room, its jobs belong to no batch: the check
    of the batch would find them missing, and their ids could not be used any more."""
    is_member = any(each.request.batch is not None for each in batch)
    if is_member:
        membership.join(store, queue.name, batch)
    new = [each.new for each in batch]
    try:
        limit, fills = queue.max_length, queue.on_full == "fill"
        answers = _told_of(batch, lambda: store.enqueue(queue.name, new, max_length=limit, fills=fills))
    except StoreError as error:
        if is_member and not isinstance(error, StoreUnavailable):  # none is stored: the batch must not wait for them
            with suppress(StoreError):
                membership.leave(store, queue.name, batch, [Added.FULL] * len(batch))
        raise
    if is_member:
        membership.leave(store, queue.name, batch, answers)
    return answers


def _told_of(batch: list[EncodedJob], call: Callable[[], Called]) -> Called:
    """Make a call to the store.  If it is not answered, the error names the first job."""
    try:
        return call()
    except StoreUnavailable as error:
        error.job_id = batch[0].new.id
        raise


def run_eagerly(each: EncodedJob) -> None:
    """Run the job here (EAGER).  Raises DuplicateJob, BatchClosed and TooManySteps."""

    def add(store: Store) -> bool:
        queue = QueueSettings(each.handle.queue)
        (answer,) = answers = _enqueue(store, queue, [each])
        note_all(queue.name, [each], answers, store)
        if answer is not Added.ADDED:
            complain(queue, each, answer, 0)
        return answer is Added.ADDED

    # Execution is a layer above enqueueing; only eager mode calls upwards, and only here.
    import_string("django_jobs.execution.eager.run")(each, add)


# -- what its answer means -----------------------------------------------------------


def note_all(queue: str, batch: list[EncodedJob], answers: list[Added], store: Store | None = None) -> None:
    """Update the handles.  A duplicate's gets the id of the job that has the key, also after a commit.  (Those of
    DEFERRED jobs are nobody's: a worker sends the outbox.)  `store`: which has answered, if it is not the project's."""
    refused = {
        each.new.id: each.new.record
        for each, answer in zip(batch, answers, strict=True)
        if answer in (Added.DUPLICATE, Added.REPLACED) and each.handle.state != DEFERRED
    }
    holders: dict[str, str] = {}
    if refused:
        with suppress(StoreError):  # what became of the jobs is known
            holders = (store or get_store()).key_holders(queue, refused)
    for each, answer in zip(batch, answers, strict=True):
        each.handle.id = holders.get(each.new.id, each.handle.id)
        _note(each, answer)


def _note(each: EncodedJob, answer: Added) -> None:
    """Update the handle and, if the job was added, send the signal."""
    each.handle.added = answer
    if answer is Added.ADDED:
        if job_enqueued.receivers:
            handle, shown = each.handle, {"attempt": 0, "job": None, "handle": each.handle}
            job_enqueued.send_robust(
                each.request.definition, job_id=handle.id, name=handle.name, queue=handle.queue, **shown
            )
    elif answer is Added.FULL:
        each.handle.state = FULL
    elif answer not in (Added.EXISTS, Added.MOVED):
        each.handle.state = DUPLICATE


def show_first(handle: JobHandle) -> None:
    """Give the caller a handle for the first job with that id, which may have ended and left long ago."""
    store = get_store()
    if (info := store.find([handle.queue], handle.id)) is not None:
        handle.show(info)
    elif (known := store.remembered(handle.queue, handle.id)) is not None and known.state is not None:
        handle.show(JobInfo(handle.id, handle.queue, b"", known.state, at=known.at), final=True)


def complain(queue: QueueSettings, each: EncodedJob, answer: Added, accepted: int) -> None:
    """Raise an error where the caller wants one."""
    if answer is Added.FULL and each.request.raise_when_full:
        raise QueueFull(queue.name, queue.max_length, accepted)
    if answer in (Added.DUPLICATE, Added.REPLACED) and each.request.on_conflict == "raise":
        raise DuplicateJob(
            f"An equal {each.handle.name} job already waits in queue {queue.name!r}, and on_conflict is 'raise'. "
            "Use enqueue_unique(), which then returns None, or on_conflict='skip'."
        )
    if answer is Added.EXISTS:
        membership.check_given_up(each)
