"""RedisStore: all its parts together, and the kinds of server that it runs on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from django_jobs.core.values import Lane
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.contract.fetching import Outlook
from django_jobs.stores.contract.store import Store, StoreOptions
from django_jobs.stores.redis.connection.addresses import cluster_from_setting, pool_from_setting, redacted
from django_jobs.stores.redis.connection.cluster import ClusterTransport
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.redis.ends import RedisEnds
from django_jobs.stores.redis.lists import RedisLists
from django_jobs.stores.redis.operating import RedisOperating
from django_jobs.stores.redis.reconciling import RedisReconciling
from django_jobs.stores.redis.running import RedisRunning
from django_jobs.stores.redis.settling import RedisSettling
from django_jobs.stores.redis.standing import RedisStanding
from django_jobs.stores.redis.upkeep import RedisUpkeep
from django_jobs.stores.redis.workflows import RedisWorkflows


class RedisStore(
    RedisRunning,
    RedisSettling,
    RedisReconciling,
    RedisUpkeep,
    RedisOperating,
    RedisEnds,
    RedisLists,
    RedisStanding,
    RedisWorkflows,
    Store,
):
    """Jobs on one Redis or Valkey server (≥ 6.2), on Sentinel, or on a Cluster."""

    @classmethod
    def from_setting(cls, setting: str, *, options: StoreOptions | None = None) -> RedisStore:
        """Make a store for the STORE setting: a URL, or "cache:ALIAS".  It connects at the first call."""
        options = options or StoreOptions()
        if setting.startswith(("redis+cluster://", "rediss+cluster://")):
            return RedisClusterStore(ClusterTransport(cluster_from_setting(setting), redacted(setting)), options)
        return cls(Transport(pool_from_setting(setting), redacted(setting)), options)


class RedisClusterStore(RedisStore):
    """A store whose queues are on several nodes: a command over several queues is split."""

    #: Seconds.  One blocking command cannot wait on several nodes: wait on one queue, then look into all.
    LONGEST_WAIT = 0.25

    #: its calls for several queues are made one after the other.
    renewed_at_once = 1

    transport: ClusterTransport

    def server_of(self, queue: str) -> str:
        return self.transport.server_of(self.keys.of(queue)["leases"])

    def _wait(self, keys: dict[bytes, str], timeout: float) -> str | None:
        queues = set(keys.values())
        chosen = random.choice(list(queues))
        one = {key: queue for key, queue in keys.items() if queue == chosen}
        return super()._wait(one, timeout if len(queues) == 1 else min(timeout, self.LONGEST_WAIT))

    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        """Ask a server that does not answer for one queue only, so that the queues of the other servers are served."""
        found: dict[str, Outlook] = {}
        silent: dict[str, StoreUnavailable] = {}
        for queue in queues:
            server = self.server_of(queue)
            if server in silent:
                continue
            try:
                found |= super().outlook([queue], lane=lane)
            except StoreUnavailable as error:
                silent[server] = error
        if silent and not found:
            raise silent.popitem()[1]
        return found


__all__ = ["RedisClusterStore", "RedisStore"]
