"""Logs a critical error when the store may delete jobs: a Redis set up as a cache evicts keys when it is full."""

from __future__ import annotations

import logging

from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: What `describe()` returns where nothing is ever evicted, or where the policy may not be read.
HARMLESS = {None, "unknown", "noeviction"}


class EvictionWatch:
    """A maintenance task: checks at the start, and repeatedly because servers are reconfigured."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._told: str | None = "noeviction"

    def tick(self) -> int:
        """Check once, and log if the policy has changed.  Returns 0: no work is left."""
        policy = self.store.describe().get("eviction_policy")
        if policy != self._told:
            self._told = policy
            if policy not in HARMLESS:
                logger.critical(
                    "Redis may delete jobs: its maxmemory-policy is %s. Set `maxmemory-policy noeviction`, "
                    "or use a separate server for the jobs.",
                    policy,
                )
        return 0
