"""Encoded jobs go to the store, and what it answers goes to their handles, to receivers and to callers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from django.utils.module_loading import import_string

from django_jobs.conf import QueueSettings, Settings
from django_jobs.core.values import Added, JobInfo, NewJob
from django_jobs.enqueue import membership
from django_jobs.enqueue.handle import DUPLICATE, FULL, JobHandle
from django_jobs.enqueue.request import Ready
from django_jobs.exceptions import DuplicateJob, JobIds, JobsError, QueueFull, StoreUnavailable
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import ADDED_BYTES, MAX_BATCH

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: Shortest and longest pause between two tries at a full queue, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25

#: Jobs that were not enqueued, and why.
Refused = tuple[list[Ready], JobsError]
#: Waits for what the store says of each job of a batch.
Answers = Callable[[], list[Added]]


def send_one(ready: Ready, settings: Settings) -> None:
    """Send one job, as every plain `enqueue()` does.  Raises QueueFull, DuplicateJob or a StoreError."""
    if settings.eager:
        _run_eagerly(ready)
        return
    queue = _queue(ready.handle.queue, settings)
    (answer,) = _ask(queue, [ready])
    _note(ready, answer)
    if answer is Added.EXISTS:
        _show_first(ready.handle)
    elif answer is not Added.ADDED:
        _complain(queue, ready, answer, 0)


class Batcher:
    """Sends jobs in batches: one call to the store per queue, MAX_BATCH jobs and about ADDED_BYTES.

    The batch of a queue is sent when it is full and another job of the queue comes.  While the store adds one batch,
    the caller makes the jobs of the next.
    """

    def __init__(self, settings: Settings, refused: list[Refused] | None = None, away: Exception | None = None) -> None:
        """`refused`: gets the jobs that are refused, and why; None: the first error is raised.  `away`: the error, if
        the store was just found unreachable."""
        self._settings, self._refused, self._away = settings, refused, away
        #: queue → its unsent jobs.
        self._unsent: dict[str, _Unsent] = {}
        #: the batch that was sent last, its queue, and the function that waits for the answers; None: all are there.
        self._sent: tuple[QueueSettings, list[Ready], Answers] | None = None
        #: how many jobs the store has added.
        self.accepted = 0

    def add(self, each: Ready) -> None:
        """Send this job with the next batch of its queue."""
        if self._settings.eager:
            with self._refusing([each]):
                _run_eagerly(each)
            return
        unsent = self._unsent.get(each.handle.queue)
        if unsent is None:
            unsent = self._unsent[each.handle.queue] = _Unsent(_queue(each.handle.queue, self._settings))
        elif unsent.is_full or unsent.size >= ADDED_BYTES or len(unsent.jobs) >= unsent.most:
            self._send(unsent, ahead=True)
        unsent.jobs.append(each)
        unsent.size += len(each.new.record)

    def end_call(self) -> None:
        """The next job belongs to another call.  In a queue with a limit it begins a new batch: such a queue takes or
        refuses a batch as a whole, and may have room for one call but not for two."""
        for unsent in self._unsent.values():
            unsent.is_full = bool(unsent.jobs and unsent.queue.max_length)

    def send_rest(self) -> None:
        """Send the batches that are not full, and wait for all answers."""
        for unsent in self._unsent.values():
            if unsent.jobs:
                self._send(unsent)
        self.finish()

    def finish(self) -> None:
        """Wait for the answers to the batch that was sent last, and pass them on.  Raises the errors of `send_one`."""
        if self._sent is None:
            return
        (queue, batch, answers), self._sent = self._sent, None
        with self._refusing(batch):
            told = list(zip(batch, answers(), strict=True))
            # Update every handle before the first error is raised: the caller may still use all of them.
            for each, answer in told:
                _note(each, answer)
            added = sum(answer is Added.ADDED for _, answer in told)
            self.accepted += added
            accepted = self.accepted if self._refused is None else added
            for each, answer in told:
                if answer is not Added.ADDED:
                    with self._refusing([each]):
                        _complain(queue, each, answer, accepted)

    def _send(self, unsent: _Unsent, *, ahead: bool = False) -> None:
        """Send the batch of a queue.  `ahead`: another follows, so the answers may come while the caller makes it."""
        queue, batch = unsent.queue, unsent.jobs
        unsent.jobs, unsent.size, unsent.is_full = [], 0, False
        self.finish()
        # There may be no room, or a batch of the jobs may be closed: then the caller must not go on.
        ahead = ahead and not queue.max_length and all(each.request.batch is None for each in batch)
        with self._refusing(batch):
            if self._away is not None:
                raise self._away
            if ahead:
                wait = get_store().enqueue_ahead(queue.name, [each.new for each in batch])
            else:
                wait = partial(_ask, queue, batch)
            self._sent = queue, batch, wait
        if not ahead:
            self.finish()

    @contextmanager
    def _refusing(self, jobs: list[Ready]) -> Iterator[None]:
        try:
            yield
        except JobsError as error:
            if isinstance(error, StoreUnavailable):
                self._away, error.job_id = error, error.job_id or jobs[0].new.id
            if self._refused is None:
                raise
            self._refused.append((jobs, error))


@dataclass(slots=True)
class _Unsent:
    """The jobs of the next batch of a queue, and the size of their records in bytes."""

    queue: QueueSettings
    jobs: list[Ready] = field(default_factory=list)
    size: int = 0
    is_full: bool = False
    #: how many jobs fill the batch.
    most: int = field(init=False)

    def __post_init__(self) -> None:
        # The store takes or refuses a batch as a whole: one that is larger than the queue would never fit.
        self.most = min(MAX_BATCH, self.queue.max_length or MAX_BATCH)


def ids_of(handles: Iterable[JobHandle]) -> JobIds:
    """Return the ids of jobs for a StoreError, and for which of them the store has answered."""
    handles = list(handles)
    ids = JobIds(handle.id for handle in handles)
    ids.answered = frozenset(handle.id for handle in handles if handle.added is not None)
    return ids


# -- the call to the store -----------------------------------------------------------


def _queue(name: str, settings: Settings) -> QueueSettings:
    # The settings may have changed since the job was checked: it waited for its commit.
    return settings.queues.get(name) or QueueSettings(name)


def _ask(queue: QueueSettings, batch: list[Ready]) -> list[Added]:
    """Ask the store until there is room, if the queue says so: the caller has to wait (ON_FULL "block")."""
    store, new = get_store(), [each.new for each in batch]
    members = [each for each in batch if each.request.batch is not None]
    if members:
        membership.join(queue.name, members)
    try:
        answers = _ask_until_room(store, queue, new, batch[0].request.block_timeout)
    except StoreUnavailable as error:
        error.job_id = new[0].id
        raise
    if members:
        membership.leave(queue.name, batch, answers)
    return answers


def _ask_until_room(store: Store, queue: QueueSettings, new: Sequence[NewJob], patience: float | None) -> list[Added]:
    answers = store.enqueue(queue.name, new, max_length=queue.max_length)
    if queue.on_full != "block" or Added.FULL not in answers or patience == 0:
        return answers
    deadline = None if patience is None else time.monotonic() + patience
    pause = _FIRST_PAUSE
    while Added.FULL in answers and (deadline is None or time.monotonic() < deadline):
        time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 2, _LONGEST_PAUSE)
        full = [i for i, answer in enumerate(answers) if answer is Added.FULL]
        again = store.enqueue(queue.name, [new[i] for i in full], max_length=queue.max_length)
        for i, answer in zip(full, again, strict=True):
            answers[i] = answer
    return answers


def _run_eagerly(each: Ready) -> None:
    _note(each, Added.ADDED)
    # Execution is a layer above enqueueing; only eager mode calls upwards, and only here.
    import_string("django_jobs.execution.eager.run")(each.new, each.handle)
    if each.request.batch is not None:
        each.request.batch.ran(each.handle)


# -- what its answer means -----------------------------------------------------------


def _note(each: Ready, answer: Added) -> None:
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
    elif answer is not Added.EXISTS:
        each.handle.state = DUPLICATE


def _show_first(handle: JobHandle) -> None:
    """Give the caller a handle for the first job with that id, which may have ended and left long ago."""
    store = get_store()
    if (info := store.get(handle.queue, handle.id)) is not None:
        handle.show(info)
    elif (known := store.remembered(handle.queue, handle.id)) is not None and known.state is not None:
        handle.show(JobInfo(handle.id, handle.queue, b"", known.state, at=known.at), final=True)


def _complain(queue: QueueSettings, each: Ready, answer: Added, accepted: int) -> None:
    """Raise an error where the caller wants one."""
    if answer is Added.FULL and each.request.raise_when_full:
        raise QueueFull(queue.name, queue.max_length, accepted)
    if answer in (Added.DUPLICATE, Added.REPLACED) and each.request.on_conflict == "raise":
        raise DuplicateJob(
            f"An equal {each.handle.name} job already waits in queue {queue.name!r}, and on_conflict is 'raise'. "
            "Use enqueue_unique(), which then returns None, or on_conflict='skip'."
        )
