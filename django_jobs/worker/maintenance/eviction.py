"""Says loudly when the store may throw jobs away: a Redis set up as a cache deletes what it likes when it is full."""

from __future__ import annotations

import logging

from django_jobs.stores.contract.store import Store

logger = logging.getLogger("django_jobs.worker")

#: What `describe()` says where nothing is ever evicted, or where nobody may ask.
HARMLESS = {None, "unknown", "noeviction"}


class EvictionWatch:
    """One task of `runworkers`: looks at the start, and again now and then because servers are reconfigured."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._told: str | None = "noeviction"

    def tick(self) -> int:
        """Look once; tell when it changed.  Nothing is ever left to do."""
        policy = self.store.describe().get("eviction_policy")
        if policy != self._told:
            self._told = policy
            if policy not in HARMLESS:
                logger.critical(
                    "Redis may delete jobs: its maxmemory-policy is %s. Set `maxmemory-policy noeviction`, "
                    "or give the jobs a server of their own.",
                    policy,
                )
        return 0
