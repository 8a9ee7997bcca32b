"""Many encoded jobs go to the store in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from django_jobs.conf import QueueSettings, Settings
from django_jobs.core.values import Added, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import EncodedJob, now_ms, state_of
from django_jobs.enqueueing.sending import ask, complain, note_all, run_eagerly, settings_of
from django_jobs.exceptions import JobIds, JobsError, StoreError, StoreUnavailable
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import ADDED_BYTES, MAX_BATCH

#: Jobs that were not enqueued, and why.
Refused = tuple[list[EncodedJob], JobsError]
#: Servers of the store that could not be reached together, and why.  A call that needs all of them is not tried.
Away = dict[frozenset[str], StoreError]
#: Waits for what the store says of each job of a batch.
Answers = Callable[[], list[Added]]


class Batcher:
    """Sends jobs in batches: one call to the store per queue, MAX_BATCH jobs and about ADDED_BYTES.

    The batch of a queue is sent when it is full and another job of the queue comes.  While the store adds one batch,
    the caller makes the jobs of the next.
    """

    def __init__(
        self,
        settings: Settings,
        refused: list[Refused] | None = None,
        away: Away | None = None,
        full: set[str] | None = None,
    ) -> None:
        """`refused`: gets the jobs that are refused, and why; None: the first error is raised.  `away`: servers that
        were just found unreachable; it gets those that are found now.  `full`: the same for queues without room; then
        each queue takes as many jobs of a batch as there is room for.  None: it takes all of them or none."""
        self._settings, self._refused, self._away = settings, refused, {} if away is None else away
        self._full = full
        #: (queue, id of a workflow batch or "") → unsent jobs.  A batch that is closed refuses its own jobs only.
        self._unsent: dict[tuple[str, str], _Unsent] = {}
        #: the batch that was sent last, its queue, and the function that waits for the answers; None: all are there.
        self._sent: tuple[QueueSettings, list[EncodedJob], Answers] | None = None
        #: how many jobs the store has added.
        self.accepted = 0

    def add(self, each: EncodedJob) -> None:
        """Send this job with the next batch of its queue."""
        if self._settings.eager:
            with self._refusing([each]):
                run_eagerly(each)
            return
        place = each.handle.queue, each.request.batch.id if each.request.batch is not None else ""
        unsent = self._unsent.get(place)
        if unsent is None:
            queue = settings_of(each.handle.queue, self._settings)
            queue = queue if self._full is None else replace(queue, on_full="fill")
            unsent = self._unsent[place] = _Unsent(queue)
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
            told = list(zip(batch, words := answers(), strict=True))
            # Update every handle before the first error is raised: the caller may still use all of them.
            note_all(queue.name, batch, words)
            if self._full is not None and Added.FULL in words:
                self._full.add(queue.name)
            added = sum(answer is Added.ADDED for _, answer in told)
            self.accepted += added
            accepted = self.accepted if self._refused is None else 0
            for each, answer in told:
                if answer is not Added.ADDED:
                    with self._refusing([each]):
                        complain(queue, each, answer, accepted)

    def _send(self, unsent: _Unsent, *, ahead: bool = False) -> None:
        """Send the batch of a queue.  `ahead`: another follows, so the answers may come while the caller makes it."""
        queue, batch = unsent.queue, unsent.jobs
        unsent.jobs, unsent.size, unsent.is_full = [], 0, False
        self.finish()
        if self._full and queue.name in self._full:  # nothing overtakes a job that has found no room
            now = now_ms()
            behind = [each for each in batch if state_of(each.new, now) is State.QUEUED]
            self._sent = queue, behind, lambda: [Added.FULL] * len(behind)
            self.finish()
            batch = [each for each in batch if each.handle.added is None]
        if not batch:
            return
        # There may be no room, or a batch of the jobs may be closed: then the caller must not go on.  An id of the
        # caller's may be in another queue.
        ahead = ahead and not queue.max_length
        ahead = ahead and all(each.request.batch is None and each.request.id is None for each in batch)
        with self._refusing(batch):
            servers = needed_by(batch)
            if (away := next((error for known, error in self._away.items() if known <= servers), None)) is not None:
                raise away
            if ahead:
                wait = get_store().enqueue_ahead(queue.name, [each.new for each in batch])
            else:
                wait = partial(ask, queue, batch)
            self._sent = queue, batch, wait
        if not ahead:
            self.finish()

    @contextmanager
    def _refusing(self, jobs: list[EncodedJob]) -> Iterator[None]:
        try:
            yield
        except JobsError as error:
            if isinstance(error, StoreUnavailable):
                error.job_id = error.job_id or jobs[0].new.id
                self._away[needed_by(jobs)] = error
            if self._refused is None:
                raise
            self._refused.append((jobs, error))


@dataclass(slots=True)
class _Unsent:
    """The jobs of the next batch of a queue, and the size of their records in bytes."""

    queue: QueueSettings
    jobs: list[EncodedJob] = field(default_factory=list)
    size: int = 0
    is_full: bool = False
    #: how many jobs fill the batch.
    most: int = field(init=False)

    def __post_init__(self) -> None:
        # The store takes or refuses a batch as a whole: one that is larger than the queue would never fit.
        self.most = min(MAX_BATCH, self.queue.max_length or MAX_BATCH)


def servers_of(*places: str, also: str = "") -> frozenset[str]:
    """Return the servers of the store that have these queues, or workflows ("~<id>"), as far as this process knows.

    `also`: what the call needs besides, which may be on any server.  If it fails, other calls to these are tried."""
    found = {get_store().server_of(place) for place in places if place}
    return frozenset(found if found == {""} or not also else found | {also})  # "": there is one server


def needed_by(jobs: list[EncodedJob]) -> frozenset[str]:
    """Return the servers that a call for these jobs needs.  They are of one queue and one batch."""
    first = jobs[0].request
    has_ids = any(each.request.id is not None for each in jobs)
    return servers_of(
        first.queue, f"~{first.batch.id}" if first.batch is not None else "", also="ids" if has_ids else ""
    )


def ids_of(handles: Iterable[JobHandle]) -> JobIds:
    """Return the ids of jobs for a StoreError, and for which of them the store has answered."""
    handles = list(handles)
    ids = JobIds(handle.id for handle in handles)
    ids.answered = frozenset(handle.id for handle in handles if handle.added is not None)
    return ids
