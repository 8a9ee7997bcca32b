"""How the attempts that a worker ran have ended: counted by each child in memory that its parent reads.

A child adds once for each call that ended attempts, after the store's answer: no message, no lock, no round trip, and
nothing per job.  The memory survives the child.  A child that is killed between the answer and the addition leaves the
jobs of this one call out; no job is ever counted twice, because the parent counts only the ends that it records itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from threading import local

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, Outcome, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Recovered, State
from django_jobs.samples.worker import ENDS

_SUCCEEDED, _FAILED, _DEAD, _RETRIED, _SNOOZED, _CANCELLED = range(len(ENDS))
_OF_STATE = {State.DEAD: _DEAD, State.CANCELLED: _CANCELLED}
#: Words of one thread: a cache line, so that threads do not wait for each other's writes.
WORDS = 8
#: Threads of a child that end attempts and do not claim: the settler, the batch monitor, and two that may come.
OTHERS = 4


class Tally:
    """The counters of one child.  Each thread writes its own, so that no addition is lost without a lock."""

    def __init__(self, words: memoryview) -> None:
        """`words`: numbers of 64 bits, WORDS for each thread."""
        self._words, self._mine, self._taken = words, local(), count()

    def add(self, attempts: Sequence[Attempted]) -> None:
        """Count attempts whose ends one call recorded: all of them succeeded, or none."""
        if not attempts:
            return
        try:
            at = self._mine.at
        except AttributeError:
            # More threads than were expected share the last place, where an addition may be lost.
            at = self._mine.at = min(next(self._taken) * WORDS, len(self._words) - WORDS)
        if isinstance(attempts[0].outcome, Succeeded):
            self._words[at] += len(attempts)
            return
        for attempted in attempts:
            for end in ends_of(attempted.outcome):
                self._words[at + end] += 1

    def read(self) -> list[int]:
        """Return how many ended in each way."""
        words = self._words.tolist()
        return [sum(words[end::WORDS]) for end in range(len(ENDS))]


class Totals:
    """The sum of what living children count, what children that ended had counted, and what the parent recorded of
    their last jobs.  It never becomes smaller."""

    def __init__(self) -> None:
        self._past = [0] * len(ENDS)

    def ended(self, tally: Tally) -> None:
        """A child has ended: its memory does not change any more.  Call it once for each child."""
        self._add(tally.read())

    def recorded(self, attempts: Iterable[Attempted]) -> None:
        """The parent has recorded these ends for a child that had not."""
        self._add(tally_of(attempted.outcome for attempted in attempts))

    def recovered(self, jobs: Iterable[Recovered]) -> None:
        """These jobs were taken back from a child that ended: some of them are at their end."""
        for job in jobs:
            if (end := _OF_STATE.get(job.state)) is not None:
                self._past[end] += 1

    def read(self, living: Iterable[Tally]) -> list[int]:
        """Return the totals in the order of ENDS."""
        return [sum(numbers) for numbers in zip(self._past, *(tally.read() for tally in living), strict=True)]

    def _add(self, counts: Sequence[int]) -> None:
        self._past = [before + more for before, more in zip(self._past, counts, strict=True)]


def ends_of(outcome: Outcome) -> tuple[int, ...]:
    """Return as what an attempt counts that ended so: places in ENDS.  One that goes on elsewhere counts as nothing."""
    match outcome:
        case Succeeded():
            return (_SUCCEEDED,)
        case RetryIn():
            return _FAILED, _RETRIED
        case Dead(log):
            # As a store counts: a job whose worker was lost has not failed.
            return (_DEAD,) if log.outcome == "worker_lost" else (_FAILED, _DEAD)
        case SnoozeFor():
            return (_SNOOZED,)
        case Cancelled():
            return (_CANCELLED,)
        case _:
            return ()


def tally_of(outcomes: Iterable[Outcome]) -> list[int]:
    """Return how many of these ended in each way."""
    counts = [0] * len(ENDS)
    for outcome in outcomes:
        for end in ends_of(outcome):
            counts[end] += 1
    return counts
