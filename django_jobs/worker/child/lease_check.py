"""Finds out, after the leases of a child had ended for a while, which of its jobs another worker has taken over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from django_jobs.core.context import RunningJob
from django_jobs.core.values import State
from django_jobs.exceptions import StoreError
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: Seconds until a store that did not answer is asked again.
AGAIN = 1.0


class LeaseCheck:
    """The queues in which the child may have lost its claims, until the store has answered."""

    def __init__(self, store: Store, running: Callable[[], Collection[RunningJob]]) -> None:
        """`running()`: the jobs that run here at this moment."""
        self.store, self.running = store, running
        self.queues: set[str] = set()

    def settle(self) -> Iterator[tuple[str, list[str]]]:
        """Ask the store.  Yields each queue it answered for, with the ids of running jobs whose claims are lost."""
        for queue in sorted(self.queues):
            try:
                lost = self._lost(queue)
            except StoreError as error:
                logger.debug(
                    "It is not known yet whether this process still holds its jobs in queue %r: %s", queue, error
                )
                return
            self.queues.discard(queue)
            yield queue, lost

    def _lost(self, queue: str) -> list[str]:
        asked = self._running(queue)
        found = self.store.get_many(queue, [id for id, _ in asked]) if asked else ()
        held = {(info.id, info.token) for info in found if info.state is State.RUNNING}
        # A job that ended in this process since the question is no longer held either: that is not a loss.
        return [id for id, _ in (asked - held) & self._running(queue)]

    def _running(self, queue: str) -> set[tuple[str, int]]:
        return {(job.id, job.token) for job in self.running() if job.queue == queue}
