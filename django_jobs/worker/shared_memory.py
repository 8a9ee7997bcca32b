"""Memory that parent and child share, made before the fork: the child's state without messages.

The child notes in it which jobs it has claimed and not begun.  While a job of the child runs C code that holds the GIL,
so that no other thread runs there, the parent may revoke these claims, all at once.

There is no lock and neither side waits, because a child may stop at any line.  The order of writes and time replace the
lock:

* to begin a job, the child first marks it as begun, and then checks whether its claims were revoked;
* to revoke, the parent first writes that, and reads SETTLED seconds later which jobs were begun.

No processor hides a write from the others for that long, and a thread that loses its processor has finished its writes.
Therefore the child sees that its claims were revoked, or the parent sees that the job was begun.  If both happen, the
child does not run the job, but hands it back itself.  A value counts only if it reads the same SETTLED seconds later.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple

from django_jobs.core.values import Claim
from django_jobs.worker.batch_memory import (
    BATCH,
    BEFORE,
    BEGUN,
    CLAIMED_AT,
    CLAIMS,
    COUNT,
    GIVEN_BACK,
    LEFT,
    LENGTH,
    QUEUE,
    RUNS,
    SINCE,
    SIZE,
    SUSPECT,
    TEXT,
    THREAD_ID,
    TOKEN,
    USED,
    WORD,
    Asked,
    BatchMemory,
    LastBatch,
    StartedJob,
)
from django_jobs.worker.tally import OTHERS, WORDS, Tally

#: Seconds between a write by one side and a read by the other that relies on it.
SETTLED = 0.1
# Words at the beginning: the number of revocations; for the claim call in progress: its number (0 = none), how many
# revocations came before it, the queue, the newest token received from that queue before, when the call began (ms,
# monotonic); the deadline of the running job (ms, monotonic; 0 = no limit, or no job); when all leases were last
# renewed (ms, monotonic).
_REVOKED, _ASKED, _ASKED_BEFORE, _ASKED_QUEUE, _NEWEST, _ASKED_AT, _DEADLINE, _RENEWED = range(8)
_HEAD = 8 * WORD
#: Where the words for the queues begin.
_CALLS = 8
_WHOLE = 2 ** (8 * WORD) - 1


class NotBegun(NamedTuple):
    """The jobs that a child has claimed and will not begin, because its claims were revoked."""

    #: the call in progress, if it began before the revocation.
    asked: Asked | None
    #: the claims, without their records.
    claims: tuple[Claim, ...]


class RunningThread(NamedTuple):
    """A thread in which a job runs, and which job that is."""

    #: the system's number of the thread.
    id: int
    batch: int
    number: int


class SharedMemory:
    """The memory that one child and its parent share.  Raises OSError if it cannot be allocated.

    `queues`: those that the child may claim from, a list that may grow to `most`; `threads`: how many of them claim."""

    def __init__(self, queues: Sequence[str], threads: int, most: int = 0) -> None:
        self.queues, self.threads = queues, threads
        most = max(most, len(queues))
        self._numbers: dict[str, int] = {}
        # After the first words: one word per queue (twice the number of the last claim call, plus 1 while it is not
        # answered), one byte per queue (1 = the parent has closed it), then the tally and the threads.
        self._closed = _HEAD + WORD * most
        counted = self._closed + most + -most % WORD
        start = counted + (threads + OTHERS) * WORDS * WORD
        self.bytes = memoryview(mmap.mmap(-1, start + threads * SIZE))
        self.words = self.bytes.cast("Q")
        self.was_renewed()
        #: how the attempts of the child have ended.
        self.tally = Tally(self.words[counted // WORD : start // WORD])
        self.batches = [BatchMemory(self.queues, self.bytes, start + n * SIZE) for n in range(threads)]
        #: used by the child: the last number given to a call or batch; queue → newest token; queue → the number of
        #: revocations before its unanswered call.
        self._last = 0
        self._newest: dict[str, int] = {}
        self._unanswered: dict[str, int] = {}
        #: the number of revocations before the current or last claim call.
        self.before = 0

    def number_of(self, queue: str) -> int:
        """Return the number of a queue in the list."""
        if queue not in self._numbers:
            self._numbers = {name: number for number, name in enumerate(self.queues)}
        return self._numbers[queue]

    # -- the child's side: one thread at a time makes a claim call ----------------------

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def is_open(self, queue: str) -> bool:
        """May the child claim from it?"""
        return not self.bytes[self._closed + self.number_of(queue)]

    @property
    def renewed_at(self) -> float:
        """When the parent last renewed all leases (monotonic seconds)."""
        return self.words[_RENEWED] / 1000

    def begin_claim(self, queue: str) -> bool:
        """Note that a claim call begins.  False: the parent has closed the queue, and the call must not be made.

        A repeated call that was not answered gets the answer of the first, so it counts as begun with the first."""
        words = self.words
        self.before = self._unanswered.get(queue, words[_REVOKED])
        words[_ASKED_BEFORE], words[_ASKED_QUEUE] = self.before, self.number_of(queue)
        words[_NEWEST], words[_ASKED_AT] = self._newest.get(queue, 0), _now()
        number = self.next_number()
        words[_CALLS + self.number_of(queue)] = 2 * number + 1
        words[_ASKED] = number
        return self.is_open(queue)

    def claim_failed(self, queue: str) -> None:
        """Note that the call failed, although the store may have executed it."""
        self._unanswered[queue] = self.before

    def claim_succeeded(self, queue: str, claims: Sequence[Claim]) -> None:
        """Note that the call brought these claims.  It counts as in progress until a thread has taken them
        (`Thread.note_claims`)."""
        self._unanswered.pop(queue, None)
        self.words[_CALLS + self.number_of(queue)] &= ~1 & _WHOLE
        if claims:
            self._newest[queue] = max(self._newest.get(queue, 0), claims[0].token)

    def end_claim(self) -> None:
        """Note that a thread has taken the claims: no claim call is in progress."""
        self.words[_ASKED] = 0

    def may_run_until(self, deadline: float | None) -> None:
        """Set the deadline of the running job (monotonic seconds).  None: it has none, or its function has returned."""
        self.words[_DEADLINE] = 0 if deadline is None else int(deadline * 1000) + 1

    # -- the parent's side --------------------------------------------------------------

    def was_renewed(self) -> None:
        """Note that all leases of the child have just been renewed."""
        self.words[_RENEWED] = _now()

    @property
    def deadline(self) -> float | None:
        """When the running job must be ended (monotonic seconds); None: no limit, or no job."""
        return self.words[_DEADLINE] / 1000 or None

    def waits_since(self) -> float | None:
        """Return since when a claimed job has not been begun or a claim call is in progress (monotonic seconds)."""
        words = self.words
        since = [words[_ASKED_AT]] if words[_ASKED] else []
        for batch in self.batches:
            if batch.words[BATCH] and 0 in bytes(batch.marks)[: batch.words[COUNT]]:
                since.append(batch.words[SINCE])
        return min(since) / 1000 if since else None

    def close_queues(self, queues: Collection[str]) -> None:
        """Let the child claim from all queues except these.  From SETTLED seconds later on, `is_claiming` tells whether
        a claim call that began before is still in progress."""
        for number, queue in enumerate(self.queues):
            self.bytes[self._closed + number] = queue in queues

    def is_claiming(self, queue: str) -> bool:
        """Is a claim call for this queue in progress?"""
        return self.words[_ASKED] != 0 and self.words[_ASKED_QUEUE] == self.number_of(queue)

    def last_call(self, queue: str) -> int | None:
        """Return the number of the last claim call for this queue, 0 if there was none; None while it may still bring
        jobs: it is in progress, or was not answered and may be delivered late."""
        word = self.words[_CALLS + self.number_of(queue)]
        return None if word % 2 else word // 2

    def revoke(self) -> None:
        """Revoke all claims so far: the child begins none of their jobs from now on."""
        self.words[_REVOKED] += 1

    def not_begun(self) -> NotBegun:
        """Return the claims of before the last revocation that were not begun.  Reliable only if a second call, SETTLED
        seconds later, returns the same."""
        words = self.words
        asked = self._asked() if words[_ASKED_BEFORE] < words[_REVOKED] else None
        revoked = (batch for batch in self.batches if batch.words[BEFORE] < words[_REVOKED])
        return NotBegun(asked, tuple(claim for batch in revoked for claim in batch.not_begun()))

    def last_batch(self) -> LastBatch:
        """Return what an alone child leaves that has ended."""
        if not self.batches:
            return LastBatch()
        batch = self.batches[0]
        return LastBatch(tuple(batch.returned_jobs()), tuple(batch.not_begun()), self._asked())

    def _asked(self) -> Asked | None:
        """Return the claim call that is in progress, if one is."""
        words = self.words
        asked, queue = words[_ASKED], words[_ASKED_QUEUE]
        if asked and queue < len(self.queues):
            return Asked(asked, self.queues[queue], words[_NEWEST])
        return None

    def thread_of_job(self) -> RunningThread | None:
        """Return the thread of an alone child in which a job runs now, if one does."""
        for batch in self.batches:
            if number := batch.words[RUNS]:
                return RunningThread(batch.words[THREAD_ID], batch.words[BATCH], number)
        return None

    def waits_to_begin(self, queue: str, id: str, token: int) -> bool:
        """Does the child hold this claim, and has its job not begun?"""
        claims = (claim for batch in self.batches for claim in batch.not_begun())
        return any((claim.queue, claim.id, claim.token) == (queue, id, token) for claim in claims)

    def running(self) -> StartedJob | None:
        """Return the job that an alone child runs, if any."""
        return next((job for batch in self.batches if (job := batch.running()) is not None), None)


class Thread:
    """The part of the memory that one thread of the child writes."""

    def __init__(self, shared: SharedMemory, number: int) -> None:
        self._shared, self._head = shared, shared.words
        self.memory = shared.batches[number]
        self._marks, self._before = self.memory.marks, 0
        #: another thread of the child may give back what this one has not begun.
        self._lock = Lock()

    def note_claims(self, queue: str, claims: Sequence[Claim], left: int = 0) -> list[tuple[int, Claim]]:
        """Note these claims, made in one call that left so many jobs.  Returns each with its number for `begin_job`.

        A batch with too many claims or too long ids is not noted: the parent then does not know of it."""
        shared, memory = self._shared, self.memory
        self._before, words = shared.before, memory.words
        text = "\n".join([claim.id for claim in claims]).encode(errors="replace")
        with self._lock:
            words[BATCH] = 0  # first: a reader then knows that the other words are not complete
            if not claims or len(claims) > CLAIMS or len(text) > TEXT:
                return [(0, claim) for claim in claims]
            words[BEFORE], words[QUEUE] = self._before, shared.number_of(queue)
            words[TOKEN], words[CLAIMED_AT] = claims[0].token, claims[0].claimed_at
            words[COUNT], words[LENGTH], words[SINCE] = len(claims), len(text), _now()
            words[LEFT], words[SUSPECT], words[USED] = left, claims[0].suspect, 0
            memory.marks[:] = bytes(CLAIMS)
            memory.text[: len(text)] = text
            words[BATCH] = shared.next_number()
        return list(enumerate(claims))

    @property
    def batch(self) -> int:
        """The number of the noted batch (0 = none)."""
        return self.memory.words[BATCH]

    def note_handed_back(self, batch: int, numbers: Iterable[int]) -> None:
        """Note that these jobs of that batch were handed back.  Its running job goes on."""
        with self._lock:
            if self.memory.words[BATCH] == batch:
                for number in numbers:
                    self._marks[number] = GIVEN_BACK

    def end_batch(self) -> None:
        """Note that nothing of the batch is left to do."""
        self.memory.words[BATCH] = 0

    def begin_job(self, number: int) -> bool:
        """Mark the job of that number as begun.  False: the claims were revoked, and the job must not run."""
        self._marks[number] = BEGUN
        return self._head[_REVOKED] == self._before


def _now() -> int:
    """Return the monotonic time in ms: one clock for all processes of a machine."""
    return int(monotonic() * 1000)
