"""The part of the store contract about whole queues: their numbers and their pauses.

All methods but `pause` and `resume` only read: a viewer may have no right to write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django_jobs.core.times import Times
from django_jobs.core.values import QueueStats
from django_jobs.samples.chart import Sampled


class ParkedName(NamedTuple):
    """Jobs of one name that wait in a queue for a worker that knows the name."""

    queue: str
    name: str
    jobs: int
    #: digests of the workers that do not know it.
    unknown_to: frozenset[str]


class QueueStore(ABC):
    """The numbers of queues, and how users pause and resume them."""

    @abstractmethod
    def queues(self) -> list[str]:
        """Return the name of every queue that ever got a job, configured or not."""

    @abstractmethod
    def pause(self, queue: str, *, name: str | None = None, reason: str = "", until: int = 0, by: str = "") -> None:
        """Pause the queue, or one job type in it, until `until` (ms; 0 = until it is resumed).  Running jobs finish.
        `by`: the user who pauses it, shown with the reason."""

    @abstractmethod
    def resume(self, queue: str, *, name: str | None = None) -> None:
        """End the pause.  Blocked jobs of a type come back in batches, by this call and by later claims."""

    @abstractmethod
    def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Return counts, latency, pauses, totals, overdue jobs and what waits for the archive, of each queue, in one
        round trip.

        `counts` has all nine states.  `totals`: "enqueued", "succeeded", "failed", "retried", "dead", "cancelled",
        "expired", "recovered", "trimmed_dead", "not_archived", and "<event>:<job name>" for the first five."""

    @abstractmethod
    def series(self, queue: str, since: int) -> dict[int, dict[str, int]]:
        """Return start of the minute (ms) → event → count, from `since` (ms).

        Events: "enqueued", "succeeded", "failed", "dead", and the sums of ms "run_ms" and "wait_ms".  Kept for 25
        hours."""

    def sums(self, queues: Sequence[str], since: int) -> dict[int, dict[str, int]]:
        """Return the `series` of several queues, added up."""
        return add_up(self.series(queue, since) for queue in queues)

    @abstractmethod
    def times(self, queues: Sequence[str]) -> Mapping[str, Mapping[str, Times]]:
        """Return queue → job type → how long its attempts waited and ran, since the store began.

        Counted are the attempts that `complete`, `retry` and `bury` ended and whose times are known.  Of a call for
        several attempts of which some were lost, these are counted too: they ran.  After the first MOST_NAMES job types
        of a queue, all others are under OTHER."""

    @abstractmethod
    def samples(self, queues: Sequence[str], width: int, *, types: bool = False) -> dict[str, Sampled]:
        """Return the samples that were taken of the totals of each queue, and the totals of now: of the whole queue, or
        of its job types.  `width`: FINE or COARSE (ms).  Queues of servers that do not answer are left out; raises
        StoreUnavailable if none answers."""

    @abstractmethod
    def parked(self, queue: str) -> list[ParkedName]:
        """Return the names whose jobs wait for a worker that knows them (see `park`), at most a hundred."""

    @abstractmethod
    def last_runs(self, queue: str) -> dict[str, int]:
        """Return schedule id → the scheduled time of its last run, ms."""

    @abstractmethod
    def refusal(self, queue: str) -> str:
        """Return why the store does not take changes now, in its own words, although it can be read: it is a replica,
        its disk is full; "" if it does, or if this user may not ask."""


def add_up(many: Iterable[dict[int, dict[str, int]]]) -> dict[int, dict[str, int]]:
    """Add up several series into one."""
    sums: dict[int, dict[str, int]] = {}
    for series in many:
        for minute, events in series.items():
            bucket = sums.setdefault(minute, {})
            for event, number in events.items():
                bucket[event] = bucket.get(event, 0) + number
    return sums
