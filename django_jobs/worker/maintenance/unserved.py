"""The queues that no running worker serves: their workers have died, or the queues have left the settings.

One process looks after them for the whole fleet.  Where workers divide thousands of queues among them, each would
otherwise read the list of all workers and pay for the queues of all.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from django_jobs.browse.health import untaken
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.keys import FLEET

#: ms for which a process has the turn, from its last look: three looks.  If its worker dies, the turn is over before a
#: usual lease is.
TURN = 15_000


class UnservedQueues:
    """Finds the queues in the store that are in no running worker's list."""

    def __init__(self, store: Store, own: Collection[str], lease: int) -> None:
        """`own`: the queues of this worker, a list that may grow.  `lease` in ms."""
        self.store, self.own, self.lease = store, own, lease
        self._name = uuid4().hex

    def find(self) -> list[str]:
        """Return the queues that this process should look after besides its own.  Raises StoreError."""
        if self.store.check_turn(FLEET, self._name, TURN):
            return []
        others = set(self.store.queues()).difference(self.own)
        if not others:
            return []
        # A worker that has been silent for a lease is listed for another one, and has lost its jobs already.
        alive_since = self.store.now() - self.lease
        workers = [each for each in self.store.workers() if each.seen_at > alive_since]
        return untaken(others, [each for each in workers if each.info.get("state") != "stopping"])
