"""A network that delays, loses and doubles requests: nothing stays held for ever, and nothing runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.checker import judge
from tests.support.dose import dose
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(300, long=1800))]

LEASE = 6
#: Seconds within which a claim of which its living worker does not know must be given back and run elsewhere.
PROMISE = LEASE + 5
JOBS, ONCE = dose((900, 100), long=(20_000, 2_000))


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port, seed=12)
    yield proxy
    proxy.close()


@pytest.fixture
def far_site(proxy: Proxy, server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """Workers and producers that reach Redis through the proxy; few succeeded jobs are kept, so that a late enqueue
    does not find its job."""
    site = Site(tmp_path, proxy.url, LEASE=LEASE, HISTORY={"succeeded": 50, "ttl": 86400})
    site.direct(server.url)
    yield site
    site.close()


@pytest.mark.accepts("G04", "K06")
def test_late_lost_and_doubled_requests_hold_nothing_for_ever_and_run_nothing_twice(
    far_site: Site, proxy: Proxy
) -> None:
    pools = [far_site.pool(), far_site.pool()]
    producers = [far_site.producer(), far_site.producer()]
    proxy.late, proxy.doubled, proxy.loses_replies, proxy.loses_requests = 0.02, 0.02, 0.01, 0.01
    producers[0].ask("work", [f"work-{n}" for n in range(JOBS)], 2)
    producers[1].ask("once", [f"once-{n}" for n in range(ONCE)], 2)
    for producer in producers:
        producer.answer(seconds=dose(200, long=1200))
    proxy.heal()
    wait_until(lambda: proxy.under_way == 0, "everything late has arrived", seconds=10)
    wait_until(lambda: not far_site.counts()["queued"], "everything has been claimed", seconds=dose(60, long=600))
    far_site.wait_drained(seconds=PROMISE)
    assert all(pool.stop() == 0 for pool in pools)

    verdict = judge(far_site.ledger.read(), far_site.state_of)
    print(f"\nredis-py {redis.__version__}: {proxy.lost} requests or replies astray, {verdict}")
    assert verdict.is_sound
    assert proxy.lost > 20
    assert {id: n for id, n in verdict.starts.items() if n > 1} == {}
