"""Moves finished jobs from the backlog in the store to the database, and deletes those that are too old there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseFault
from django.db import close_old_connections, connections

from django_jobs import archive
from django_jobs.conf import get_settings
from django_jobs.formatting import migrate_hint
from django_jobs.runtime.complaints import Complaints
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: Jobs per transaction: enough to make its fixed costs small, and a fraction of a second of the database's time.
BATCH = 2000
#: Seconds that one tick spends on one queue, and on all: then other queues have their turn, in the next tick.
SLICE, TICK = 1.0, 10.0
#: Seconds between two searches for rows that are too old.
PRUNE_EVERY = 60.0


class ArchiveBatch(NamedTuple):
    """Jobs of the backlog, ready for the database."""

    keys: list[int | str]
    rows: archive.Rows


class Archiver:
    """A maintenance task of every worker.  Each queue has one archiver at a time, for a lease that it renews.

    Nothing depends on the lease but speed: writing a job again changes nothing, and only written jobs are removed."""

    def __init__(
        self,
        store: Store,
        queues: Callable[[], Iterable[str]],
        lease: int = 30_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`lease` in ms: when an archiver has died, another one takes over so long after its last batch.  After an
        orderly stop, `leave` has given the queues back."""
        self.store, self.queues, self.lease, self.clock = store, queues, lease, clock
        self.name = os.urandom(9).hex()
        self.last = ""
        self.pruned_at: float | None = None
        self._complaints = Complaints()

    def tick(self) -> int:
        """Move jobs of each queue for at most SLICE seconds, and delete one batch of old rows.  Returns the number of
        jobs that were moved, and of rows if more are left; call again soon while it is not 0.

        A database that cannot be reached delays only the archive: jobs that were not written stay in the store.
        """
        settings = get_settings().archive
        if settings is None:
            return 0
        _tidy()
        try:
            mine = self.store.archive_turns(sorted(self.queues()), self.name, self.lease)
            pruned = self._prune(float(settings.get("DAYS", 180)))
            carried = self._carry_some(mine)
            self._complaints.is_over()
        except (DatabaseFault, ImproperlyConfigured) as error:
            if self._complaints.is_new(error):
                logger.warning(
                    "Finished jobs cannot be archived now; they wait in the store: %s%s", error, migrate_hint(error)
                )
            return 0
        finally:
            _tidy()
        return carried + pruned

    def leave(self) -> None:
        """The worker has stopped: another archiver takes over now, not when the lease has ended.  Raises StoreError."""
        if get_settings().archive is not None:
            self.store.archive_leave(sorted(self.queues()), self.name)

    def _carry_some(self, queues: list[str]) -> int:
        """Move jobs of these queues, beginning with the one after the last tick's last."""
        carried, until = 0, self.clock() + TICK
        for queue in [each for each in queues if each > self.last] + [each for each in queues if each <= self.last]:
            if self.clock() >= until:
                break
            self.last = queue  # whatever happens: one that fails must not be the first of every tick
            carried += self._carry(queue)
        return carried

    def _carry(self, queue: str) -> int:
        """Write batch after batch.  A thread reads the next one while the database works."""
        carried, until = 0, self.clock() + SLICE
        with ThreadPoolExecutor(1, "archive reader") as reader:
            batch = self._read(queue)
            while batch.keys:
                following: Future[ArchiveBatch] | None = None
                if self.clock() < until and self.store.archive_turns([queue], self.name, self.lease):
                    following = reader.submit(self._read, queue, len(batch.keys))
                archive.write_rows(batch.rows)
                self.store.archive_done(queue, batch.keys)
                carried += len(batch.keys)
                if following is None:
                    break
                batch = following.result()
        return carried

    def _read(self, queue: str, skip: int = 0) -> ArchiveBatch:
        found = self.store.archive_batch(queue, BATCH, skip)
        return ArchiveBatch([key for key, _ in found], archive.prepare([info for _, info in found]))

    def _prune(self, days: float) -> int:
        now = self.clock()
        if self.pruned_at is not None and now - self.pruned_at < PRUNE_EVERY:
            return 0
        pruned = archive.prune(days)
        is_full = pruned == archive.BATCH
        self.pruned_at = None if is_full else now
        return pruned if is_full else 0


def _tidy() -> None:
    """Close stale connections; close none while a transaction is open, which is then that of a test."""
    if not any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        close_old_connections()
