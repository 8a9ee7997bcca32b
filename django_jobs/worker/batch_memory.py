"""What one thread of a child shows its parent of its batch: which jobs it claimed, begun and ended, and which one runs.

The thread writes and the parent reads, without a lock and without a message.  While the child lives, what the parent
reads may be out of date by the time it acts.  After the child's death it is exact, because the memory survives the
process: the job that ran is charged, what had not begun goes back, and what had returned is recorded as succeeded.

Only children that run one job at a time note which job runs, and what the ended jobs returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django_jobs.core.values import Claim

#: Claims of one call that are noted, and bytes of their ids (at most 128 each, and a separator): at least as many as a
#: thread claims at a time (child/queue_selector.py: LARGEST).
CLAIMS, TEXT = 700, 700 * 129
#: Bytes of what ended jobs returned.  A batch that returns more is settled in between.
RETURNED = 1 << 16
WORD = 8
# Words of a thread: the number of its batch (0 = the other words are not valid), then for that batch: the number of
# revocations before its claim call, queue, token, when it was claimed (ms, the store's clock), number of claims, bytes
# of their ids, when the thread took it (ms, monotonic), jobs that the claim left in the lane, is its job a suspect.
BATCH, BEFORE, QUEUE, TOKEN, CLAIMED_AT, COUNT, LENGTH, SINCE, LEFT, SUSPECT = range(10)
# Words of an alone child: 1 + the number of the running job (0 = none), when it began (ms, monotonic), its time limit
# (ms, 0 = none), bytes of what ended jobs returned, the system's id of the thread.
RUNS, RAN_AT, LIMIT, USED, THREAD_ID = range(10, 15)
_WORDS = 15
SIZE = _WORDS * WORD + CLAIMS + TEXT + RETURNED
SIZE += -SIZE % WORD

# Marks of a claim; 0 = not begun.
BEGUN, ENDED, GIVEN_BACK = 1, 2, 3
#: Times that the parent reads about a running job before it gives up: jobs then end faster than it can read.
_READS = 5


class StartedJob(NamedTuple):
    """The job that an alone child runs."""

    queue: str
    id: str
    token: int
    #: when it began (monotonic seconds).
    at: float
    #: time limit in ms, or None.
    timeout: int | None = None
    #: jobs that waited in its lane when it was claimed.
    left: int = 0
    #: a whole worker, parent and children, died while it held this job.
    suspect: bool = False


class Returned(NamedTuple):
    """A job of an alone child whose function has returned.  The claim has no record."""

    claim: Claim
    run_ms: int
    result: bytes


class Asked(NamedTuple):
    """A claim call in progress: none of its jobs has begun."""

    number: int
    queue: str
    #: the newest token that the child had received from the queue before: claims with a later one came with this call.
    newest: int


class LastBatch(NamedTuple):
    """What a child that has ended leaves of its last batch, besides the job that ran."""

    #: jobs that have succeeded and may not be recorded as succeeded yet.
    returned: tuple[Returned, ...] = ()
    #: claims, without their records.
    not_begun: tuple[Claim, ...] = ()
    #: the call that may have brought more.
    asked: Asked | None = None


class BatchMemory:
    """The memory of one thread."""

    def __init__(self, queues: Sequence[str], memory: memoryview, start: int) -> None:
        """`memory`: all bytes that child and parent share; `start`: where those of this thread begin."""
        self.queues = queues
        marks = start + _WORDS * WORD
        text, returned = marks + CLAIMS, marks + CLAIMS + TEXT
        self.words = memory.cast("Q")[start // WORD : marks // WORD]
        self.marks, self.text = memory[marks:text], memory[text:returned]
        self.returned = memory[returned : returned + RETURNED]
        #: the number of the batch whose ids were read last, and these ids.
        self._ids: tuple[int, list[str]] = (0, [])

    # -- the child's side (besides shared_memory.Thread) ------------------------------------

    def runs(self, number: int, at: float, limit: int | None) -> None:
        """Note that this job of the batch runs since `at` (monotonic seconds), and its time limit (ms)."""
        words = self.words
        words[RAN_AT], words[LIMIT] = int(at * 1000), limit or 0
        words[RUNS] = number + 1

    def runs_nothing(self) -> None:
        self.words[RUNS] = 0

    def has_returned(self, number: int, run_ms: int, result: bytes) -> bool:
        """Note that the job has succeeded with this result.  False: there is no room for it."""
        words = self.words
        head = b"%d %d %d\n" % (number, run_ms, len(result))
        begin = words[USED]
        end = begin + len(head) + len(result)
        if end > RETURNED or not words[BATCH]:
            return False
        self.returned[begin:end] = head + result
        words[USED] = end
        self.marks[number] = ENDED
        return True

    # -- the parent's side ------------------------------------------------------------------

    def not_begun(self) -> list[Claim]:
        """Return the claims, without their records, of jobs that have not begun."""
        marks = bytes(self.marks)
        return [claim for number, claim in enumerate(self._claims()) if not marks[number]]

    def returned_jobs(self) -> Iterator[Returned]:
        """Yield the jobs that have succeeded.  Call it only when the child has ended."""
        claims, text = self._claims(), bytes(self.returned[: min(self.words[USED], RETURNED)])
        while text and claims:
            head, _, text = text.partition(b"\n")
            number, run_ms, length = map(int, head.split())
            if self.marks[number] == ENDED:  # else the process ended between the two notes: the job runs again
                yield Returned(claims[number], run_ms, text[:length])
            text = text[length:]

    def running(self) -> StartedJob | None:
        """Return the job that runs, if it is noted."""
        words = self.words
        for _ in range(_READS):
            batch, runs = words[BATCH], words[RUNS]
            if not batch or not runs:
                return None
            about, ids = words[:_WORDS].tolist(), self._read_ids()
            if (words[BATCH], words[RUNS]) == (batch, runs) and about[BATCH] == batch and runs <= len(ids):
                known = ids[runs - 1], about[TOKEN], about[RAN_AT] / 1000, about[LIMIT] or None
                return StartedJob(self.queues[about[QUEUE]], *known, about[LEFT], bool(about[SUSPECT]))
        return None

    def _claims(self) -> list[Claim]:
        words = self.words
        if not words[BATCH] or words[QUEUE] >= len(self.queues):
            return []
        known = self.queues[words[QUEUE]], words[TOKEN], b""
        return [Claim(id, *known, claimed_at=words[CLAIMED_AT]) for id in self._read_ids()]

    def _read_ids(self) -> list[str]:
        batch, length, count = self.words[BATCH], self.words[LENGTH], self.words[COUNT]
        if length > TEXT:
            return []
        if self._ids[0] != batch:
            ids = bytes(self.text[:length]).decode(errors="replace").split("\n")[:count]
            if self.words[BATCH] != batch:
                return ids
            self._ids = batch, ids
        return self._ids[1]
