"""A worker that cannot renew its leases in time claims from fewer queues, and says so."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.waiting import wait_until

#: One round over all of them takes longer than the lease.
QUEUES, DELAY, LEASE = ["default", *(f"q{n:02}" for n in range(80))], 0.1, 6


@pytest.mark.redis
def test_a_worker_too_slow_for_its_queues_leaves_the_least_important_ones(tmp_path: Path) -> None:
    """Each queue costs a round trip, as on a Cluster; no job starts twice, though each runs for more than a lease."""
    server = RedisServer(tmp_path / "redis").start()
    proxy = Proxy(server.port)
    site = WorkerSite(
        tmp_path, proxy.url, LEASE=LEASE, QUEUES={name: {"PRIORITY": 100 - n} for n, name in enumerate(QUEUES)}
    )
    site.direct_any(server.url)
    try:
        proxy.delay = DELAY
        pool = site.pool(threads=4, extra={"RENEWS_ONE": "yes"})

        def closed() -> int:
            return max((worker.info.get("closed", 0) for worker in site.store.workers()), default=0)

        wait_until(lambda: closed() > 40, "it has left most of its queues")
        assert "claims only from the most important ones" in pool.text()
        kept = [site.put("waits_for", str(tmp_path / "go"), queue=name) for name in QUEUES[:2]]
        left = site.put("work", queue=QUEUES[-1])
        site.ledger.wait("start", 2)
        began = monotonic()
        wait_until(lambda: monotonic() - began > 2 * LEASE, "two leases are over")
        assert [site.info(id, name).state for id, name in zip(kept, QUEUES, strict=False)] == [State.RUNNING] * 2
        assert site.info(left, QUEUES[-1]).state is State.QUEUED

        proxy.delay = 0
        site.wait(left, queue=QUEUES[-1])
        (tmp_path / "go").touch()
        for id, name in zip(kept, QUEUES, strict=False):
            site.wait(id, queue=name)
        wait_until(lambda: closed() == 0, "it claims from all of them")
        starts = [event.id for event in site.ledger.read() if event.kind == "start"]
        assert sorted(starts) == sorted([*kept, left])
        assert pool.stop() == 0
    finally:
        site.close()
        proxy.close()
        server.close()
