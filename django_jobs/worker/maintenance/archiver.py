"""Moves finished jobs from the store's outbox to the database, and deletes those that are too old there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import monotonic

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, close_old_connections, connections

from django_jobs import archive
from django_jobs.conf import get_settings
from django_jobs.stores.contract.store import Store

logger = logging.getLogger("django_jobs.worker")

#: Jobs of one queue that one tick moves at most: this limits the cost of a tick, and the next one moves the rest.
BATCH = 500
#: Seconds between two searches for rows that are too old.
PRUNE_EVERY = 60.0


class Archiver:
    """A maintenance task.  Several machines may run it at the same time: writing a job again changes nothing."""

    def __init__(
        self, store: Store, queues: Callable[[], Iterable[str]], clock: Callable[[], float] = monotonic
    ) -> None:
        self.store, self.queues, self.clock = store, queues, clock
        self.pruned_at: float | None = None

    def tick(self) -> int:
        """Move one batch per queue, and delete one batch of old rows.  Returns the number of jobs that were moved,
        and of rows if more are left; call again soon while it is not 0.

        A database that cannot be reached delays only the archive: jobs that were not written stay in the store.
        """
        settings = get_settings().archive
        if settings is None:
            return 0
        _tidy()
        try:
            carried = sum(self._carry(queue) for queue in self.queues())
            pruned = self._prune(float(settings.get("DAYS", 180)))
        except (DatabaseError, InterfaceError, ImproperlyConfigured) as error:
            logger.warning("Finished jobs cannot be archived now; they wait in the store: %s", error)
            return 0
        finally:
            _tidy()
        return carried + pruned

    def _carry(self, queue: str) -> int:
        batch = self.store.archive_batch(queue, BATCH)
        if batch:
            archive.write([info for _, info in batch])
            self.store.archive_done(queue, [key for key, _ in batch])
        return len(batch)

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
