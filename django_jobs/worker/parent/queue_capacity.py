"""Which queues a worker claims from: all that its options and patterns name, as many as it can renew leases for.

Where renewals are slow (a distant Cluster, with one round trip per queue), a round over all queues may take longer than
a lease, and jobs would start twice.  Then this worker leaves the least important queues to other workers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from math import inf
from time import monotonic

from django_jobs.exceptions import StoreError
from django_jobs.formatting import counted
from django_jobs.stores.values.answers import Renewal
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.retry import RetryState
from django_jobs.worker.served_queues import ServedQueues
from django_jobs.worker.shared_memory import SETTLED

logger = logging.getLogger("django_jobs.worker")

#: Fractions of a lease: a round that takes longer than TOO_LONG is too long; PLANNED is the aim; a round shorter than
#: SHORT leaves time for more queues.
TOO_LONG, PLANNED, SHORT = 1 / 3, 1 / 4, 1 / 8
#: Seconds between two looks for new queues, if there are patterns: their jobs begin within 5 s.
LOOK = 2.0
#: Calls after which the duration of the whole round is estimated.
ENOUGH = 2


class QueueCapacity:
    """Gets the duration of each renewal; closes queues to the children, and opens them again."""

    def __init__(
        self, queues: ServedQueues, lease: int, child_processes: ChildProcesses, *, keeps_all: bool = False
    ) -> None:
        """`lease` in milliseconds.  The queues with the highest PRIORITY are kept; among equals, those that come first.

        `keeps_all`: this worker ends when all jobs are done, so it closes no queue and only logs that it is slow.
        """
        self.lease, self.child_processes, self.keeps_all = lease / 1000, child_processes, keeps_all
        self.queues, self._most = queues, inf
        #: when to look for new queues (monotonic).
        self.due = 0.0 if queues.patterns else inf
        self._looking = RetryState("Looking for new queues")
        #: closed queue → since when (monotonic); the closed queues in which no child holds a job or will claim one.
        self._closed_at: dict[str, float] = {}
        self._left: set[str] = set()
        self._is_slow = False

    def step(self, now: float) -> None:
        """Look for new queues if it is time."""
        if now < self.due:
            return
        self.due = now + LOOK
        try:
            self.look()
            self._looking.worked()
        except StoreError as error:
            self.due += self._looking.failed(error)

    def look(self) -> bool:
        """Find new queues, and close those for which there is no room.  Returns whether there are any.  Raises
        StoreError."""
        grown = self.queues.look(self.child_processes.store)
        if grown and self.is_narrow:
            self._set(self._most)
        return grown

    @property
    def most(self) -> int:
        """How many queues it claims from."""
        return int(min(self._most, len(self.queues)))

    @property
    def is_narrow(self) -> bool:
        return self._most < len(self.queues)

    def to_renew(self) -> list[str]:
        """Return the queues in which a child may hold jobs."""
        return [queue.name for queue in self.queues if queue.name not in self._left]

    def quiet(self, queues: Collection[str]) -> list[str]:
        """Return the closed ones of `queues` without a claim call in progress.  Call this before renewing them."""
        now, children = monotonic(), list(self.child_processes)
        return [
            queue
            for queue in queues
            if queue in self._closed_at
            and now - self._closed_at[queue] > SETTLED
            and not any(child.shared.is_claiming(queue) for child in children)
        ]

    def renewed(self, queue: str, answer: Mapping[str, Renewal]) -> None:
        """A queue that was quiet has been renewed.  If no child holds jobs in it, it need not be renewed again."""
        if queue in self._closed_at and not any(renewal.holds or renewal.asked for renewal in answer.values()):
            self._left.add(queue)

    def adjust(self, seconds: float, done: int, calls: int, queues: int) -> None:
        """Close or open queues after `done` of the `calls` of a round, which renews `queues` queues, took `seconds`."""
        if done < ENOUGH and done < calls:
            return
        each, whole = seconds / done, seconds / done * calls
        if whole > self.lease * TOO_LONG:
            # A call with fewer queues takes as long.
            # Rounded before `int`: differences between large clock values are slightly inexact.
            fits = max(1, int(round(self.lease * PLANNED / each, 3))) * -(-queues // calls)
            if fits < self.most and calls > 1 and not self.keeps_all:
                self._set(fits)
                self._say(queues, whole, f"this worker claims only from the most important ones ({fits})")
            elif not self.is_narrow and not self._is_slow:
                self._say(queues, whole, "jobs may start twice")
            self._is_slow = True
        elif done == calls:
            self._is_slow = False
            if whole < self.lease * SHORT and self.is_narrow:
                self._set(self.most * 2 if self.most * 2 < len(self.queues) else inf)
                if not self.is_narrow:
                    logger.warning("The leases are renewed in time: this worker claims from all its queues again")

    def _say(self, queues: int, seconds: float, what: str) -> None:
        logger.error(
            "Renewing the leases in %s takes about %.1f s, and a lease is %g s: %s. "
            "Give this worker fewer queues (--queues), or raise LEASE.",
            counted(queues, "queue"),
            seconds,
            self.lease,
            what,
        )

    def _set(self, most: float) -> None:
        self._most = most
        by_rank = [queue.name for queue in sorted(self.queues, key=lambda queue: -queue.priority)]
        closed, now = by_rank[self.most :], monotonic()
        self._closed_at = {queue: self._closed_at.get(queue, now) for queue in closed}
        self._left.intersection_update(closed)  # before a child may claim from a reopened queue
        self.child_processes.close_queues(frozenset(closed))
