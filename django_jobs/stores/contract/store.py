"""The store contract: what every store can do, and the options that every store gets when it is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from django_jobs.stores.contract.archive import ArchiveStore
from django_jobs.stores.contract.documents import DocumentStore
from django_jobs.stores.contract.ends import EndsStore
from django_jobs.stores.contract.fetching import FetchingStore
from django_jobs.stores.contract.fleet import FleetStore
from django_jobs.stores.contract.lists import ListStore
from django_jobs.stores.contract.operating import OperatingStore
from django_jobs.stores.contract.queues import QueueStore
from django_jobs.stores.contract.running import MAX_BATCH, RunningStore
from django_jobs.stores.contract.upkeep import UpkeepStore
from django_jobs.stores.contract.workflows import WorkflowStore

__all__ = ["MAX_BATCH", "Store", "StoreOptions"]

DAY = 86_400_000
#: Jobs of one queue that may wait for the archiver, if ARCHIVE["BACKLOG"] does not say it: an hour
#: without a database at 280 jobs per second, and less than 1 GB of memory with small arguments.
BACKLOG = 1_000_000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The settings that a store needs.  Durations in ms."""

    namespace: str = "jobs"
    #: succeeded jobs kept per queue, and for how long.
    history: int = 1000
    history_ttl: int = DAY
    #: dead jobs kept per queue, and for how long; for cancelled and expired jobs, `history` and `history_ttl` apply.
    dead: int = 100_000
    dead_ttl: int = 180 * DAY
    #: an id with a digest is remembered this long after its job ended.
    idempotency: int = DAY
    #: a job is dead when its worker has died this many times.  No setting: it is a promise, the same in every process.
    max_crashes: int = 3
    #: finished jobs are also put into the archiver's outbox, which holds at most `backlog` jobs of each queue.
    archive: bool = False
    backlog: int = BACKLOG
    #: for tests: a clock in ms that replaces the store's own.
    clock: Callable[[], int] | None = None


class Store(
    RunningStore,
    FetchingStore,
    OperatingStore,
    EndsStore,
    QueueStore,
    UpkeepStore,
    FleetStore,
    ListStore,
    DocumentStore,
    ArchiveStore,
    WorkflowStore,
    ABC,
):
    """A place where jobs are stored.  Safe to use from many threads and after a fork."""

    options: StoreOptions

    @abstractmethod
    def now(self) -> int:
        """Return the time of the store's clock, ms."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return what `doctor` shows: kind, version, persistence, eviction policy, address without password …"""

    def locked_by(self) -> int | None:
        """Return the id of the process that keeps all others from writing now; 0 if there is none, or it is not
        known; None if the store is a server, which has no such lock."""
        return None

    def prepare(self) -> None:
        """Do once what each copy of this process would do at its first calls.  Sends nothing."""

    def abandon(self) -> None:
        """Drop the sockets in a copy of the process that a job has made, without sending anything or taking a lock."""

    @abstractmethod
    def close(self) -> None:
        """Close this process's connections; the next call opens new ones."""
