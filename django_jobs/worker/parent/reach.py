"""How many queues a worker claims from: as many as it can renew leases for.

Where renewals are slow (a distant Cluster, with one round trip per queue), a round over all queues may take longer than
a lease, and jobs would start twice.  Then this worker leaves the least important queues to other workers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from time import monotonic

from django_jobs.conf import QueueSettings
from django_jobs.formatting import counted
from django_jobs.stores.values.answers import Renewal
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.shared_memory import SETTLED

logger = logging.getLogger("django_jobs.worker")

#: Fractions of a lease: a round that takes longer than TOO_LONG is too long; PLANNED is the aim; a round shorter than
#: SHORT leaves time for more queues.
TOO_LONG, PLANNED, SHORT = 1 / 3, 1 / 4, 1 / 8
#: Calls after which the duration of the whole round is estimated.
ENOUGH = 2


class Reach:
    """Gets the duration of each renewal; closes queues to the children, and opens them again."""

    def __init__(
        self, queues: Sequence[QueueSettings], lease: float, child_processes: ChildProcesses, *, keeps_all: bool = False
    ) -> None:
        """`lease` in seconds.  The queues with the highest PRIORITY are kept; among equals, those that come first.

        `keeps_all`: this worker ends when all jobs are done, so it closes no queue and only logs that it is slow.
        """
        self.lease, self.child_processes, self.keeps_all = lease, child_processes, keeps_all
        self._names = [queue.name for queue in queues]
        self._by_rank = [queue.name for queue in sorted(queues, key=lambda queue: -queue.priority)]
        self.most = len(self._names)
        #: closed queue → since when (monotonic); the closed queues in which no child holds a job or will claim one.
        self._closed_at: dict[str, float] = {}
        self._left: set[str] = set()
        self._is_slow = False

    @property
    def is_narrow(self) -> bool:
        return self.most < len(self._names)

    def to_renew(self) -> list[str]:
        """Return the queues in which a child may hold jobs."""
        return [name for name in self._names if name not in self._left]

    def quiet(self, queues: Collection[str]) -> list[str]:
        """Return the closed ones of `queues` without a claim call in progress.  Call this before renewing them."""
        now, children = monotonic(), list(self.child_processes)
        return [
            queue
            for queue in queues
            if queue in self._closed_at
            and now - self._closed_at[queue] > SETTLED
            and not any(child.shared.may_ask(queue) for child in children)
        ]

    def renewed(self, queue: str, answer: Mapping[str, Renewal]) -> None:
        """A queue that was quiet has been renewed.  If no child holds jobs in it, it need not be renewed again."""
        if queue in self._closed_at and not any(renewal.holds or renewal.asked for renewal in answer.values()):
            self._left.add(queue)

    def judge(self, seconds: float, done: int, calls: int, queues: int) -> None:
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
                self._set(min(self.most * 2, len(self._names)))
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

    def _set(self, most: int) -> None:
        self.most = most
        closed, now = self._by_rank[most:], monotonic()
        self._closed_at = {queue: self._closed_at.get(queue, now) for queue in closed}
        self._left.intersection_update(closed)  # before a child may claim from a reopened queue
        self.child_processes.close_queues(frozenset(closed))
