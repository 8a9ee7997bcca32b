"""The settings that a store is made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    #: finished jobs are also put into the archive's backlog, which holds at most `backlog` jobs of each queue.
    archive: bool = False
    backlog: int = BACKLOG
    #: for tests: a clock in ms that replaces the store's own.
    clock: Callable[[], int] | None = None
