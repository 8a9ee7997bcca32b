"""The part of the store contract that people use to look.  Plain reads only: a viewer may have no right to more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django_jobs.core.values import Faults, JobInfo, QueueStats, State, WorkerInfo


class Remembered(NamedTuple):
    """What is known of an id that must not be used again."""

    #: as in NewJob.
    digest: str
    #: how the job ended; None while it is in the store.
    state: State | None
    #: ms: when it ended, or was enqueued.
    at: int


class ParkedName(NamedTuple):
    """Jobs of one name that wait in a queue for a worker that knows it."""

    queue: str
    name: str
    jobs: int
    #: digests of the workers that do not.
    unknown_to: frozenset[str]


class BrowsingStore(ABC):
    """How people see jobs.  Every method costs O(what it returns)."""

    @abstractmethod
    def get(self, queue: str, id: str) -> JobInfo | None:
        """Everything about one job, or None."""

    @abstractmethod
    def find(self, queues: Sequence[str], id: str) -> JobInfo | None:
        """The same where only the id is known: one round trip over all queues, then `get`."""

    @abstractmethod
    def walk(
        self, queue: str, state: State, cursor: str = "", limit: int = 100, *, until: int = 0
    ) -> tuple[list[str], str]:
        """At most `limit` ids in one state, and where to go on ("" = the end).

        No id that stays is missed or met twice, whatever comes and goes between the calls.  With `until` (ms), finished
        jobs that ended later are left out: a walk ends though what it meets ends again.  Raises ValueError for a cursor
        that is none of this walk."""

    def get_many(self, queue: str, ids: Sequence[str]) -> list[JobInfo]:
        """Those that exist, in the order asked, each as in `page`.  At most MAX_BATCH ids."""
        return [info for id in ids if (info := self.get(queue, id)) is not None]

    @abstractmethod
    def remembered(self, queue: str, id: str) -> Remembered | None:
        """What is known of an id that was given with a digest: as long as its job is there, and
        `StoreOptions.idempotency` after its end."""

    @abstractmethod
    def has_returned_none(self, queue: str, id: str) -> bool:
        """Did this job, which is not there, succeed and return None?  Known for a minute after it has left because of
        HISTORY, of the last 50,000 of the queue at least."""

    @abstractmethod
    def page(
        self, queue: str, state: State, offset: int = 0, limit: int = 50, *, reverse: bool = False
    ) -> list[JobInfo]:
        """A page of one state: of each log only the last attempt, no result's body beyond 1 kB, and maybe no `since`.

        Order: queued as they will run (lane shared, then alone); scheduled and retry by due time; running by claim
        time; blocked by key; finished by time.  `reverse` turns it round (newest first for finished ones)."""

    @abstractmethod
    def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts, latency, pauses and totals of each queue, in one round trip.

        counts has all nine states.  totals: "enqueued", "succeeded", "failed", "retried", "dead", "cancelled",
        "expired", "recovered", "trimmed_dead", and "<event>:<job name>" for the first five."""

    @abstractmethod
    def series(self, queue: str, since: int) -> dict[int, dict[str, int]]:
        """minute (ms, start) → event → count, for "enqueued", "succeeded", "failed", "dead", "run_ms", "wait_ms"
        (sums), from `since`; kept for 25 hours."""

    def sums(self, queues: Sequence[str], since: int) -> dict[int, dict[str, int]]:
        """The same of several queues, added up."""
        return add_up(self.series(queue, since) for queue in queues)

    @abstractmethod
    def queues(self) -> list[str]:
        """Every queue name that was ever enqueued to, configured or not."""

    @abstractmethod
    def workers(self) -> list[WorkerInfo]:
        """The `runworkers` parents that live."""

    @abstractmethod
    def parked(self, queue: str) -> list[ParkedName]:
        """The names that keep jobs waiting for a worker that knows them (see `park`), a hundred at most."""

    @abstractmethod
    def fired(self, queue: str) -> dict[str, int]:
        """schedule id → its last fire time, ms."""

    @abstractmethod
    def faults(self, queue: str, limit: int = 10_000) -> Faults:
        """What `reconcile` would repair, but for litter: leases and periods that are over.  Nothing is changed.  Of
        each kind about `limit` entries are looked at, a thousand at a time."""

    @abstractmethod
    def now(self) -> int:
        """The store's clock, ms."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """What `doctor` wants to know: kind, version, persistence, eviction policy, address without password …"""


def add_up(many: Iterable[dict[int, dict[str, int]]]) -> dict[int, dict[str, int]]:
    """One series of many."""
    sums: dict[int, dict[str, int]] = {}
    for series in many:
        for minute, events in series.items():
            bucket = sums.setdefault(minute, {})
            for event, number in events.items():
                bucket[event] = bucket.get(event, 0) + number
    return sums
