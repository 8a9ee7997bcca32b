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

#: Seconds between two looks.
EVERY = 5.0
#: ms for which a process has the turn, from its last look: three looks.  If its worker dies, the turn is over before a
#: usual lease is.
TURN = 15_000


class UnservedQueues:
    """A task beside the others: it finds the queues in the store that are in no running worker's list.

    On a Cluster, the keys of the fleet may be on a node that hangs: its thread waits for that, and not the one that
    recovers the jobs of this worker's queues on the other nodes."""

    def __init__(self, store: Store, own: Collection[str], lease: int) -> None:
        """`own`: the queues of this worker, a list that may grow.  `lease` in ms."""
        self.store, self.own, self.lease = store, own, lease
        #: the queues that this process should look after besides its own.
        self.found: Collection[str] = ()
        self._name = uuid4().hex

    def tick(self) -> float:
        """Look.  Returns the seconds until the next look.  Raises StoreError."""
        has_turn = not self.store.check_turn(FLEET, self._name, TURN)
        self.found = self._unserved() if has_turn else ()
        return EVERY

    def _unserved(self) -> Collection[str]:
        others = set(self.store.queues()).difference(self.own)
        if not others:
            return ()
        # A worker that has been silent for a lease is listed for another one, and has lost its jobs already.
        alive_since = self.store.now() - self.lease
        workers = [each for each in self.store.workers() if each.seen_at > alive_since]
        return untaken(others, [each for each in workers if each.info.get("state") != "stopping"])
