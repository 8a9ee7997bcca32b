"""A replica takes over: with FAILOVER nothing is lost; after a crash of the primary everything is at least sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.checker import judge
from tests.support.pools import Site
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]


@pytest.fixture
def replica(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with server.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)  # by default it waits 5 s for further replicas
    replica = RedisServer(tmp_path_factory.mktemp("replica"), "--replicaof", "127.0.0.1", str(server.port))
    replica.start()
    try:
        wait_until(lambda: follows(replica), "it has synchronised", seconds=20)
        yield replica
    finally:
        replica.close()


def follows(replica: RedisServer) -> bool:
    with replica.client() as client:
        return bool(client.info("replication")["master_link_status"] == "up")


@pytest.mark.accepts("G04", "P03")
@pytest.mark.parametrize("how", ["FAILOVER", "crash"])
def test_workers_follow_to_the_new_primary(server: RedisServer, replica: RedisServer, tmp_path: Path, how: str) -> None:
    """The proxy is the address that moves, as Sentinel, a service name or a load balancer does it."""
    proxy = Proxy(server.port)
    site = Site(tmp_path, proxy.url, LEASE=6)
    try:
        producer, pools = site.producer(), [site.pool(), site.pool()]
        producer.ask("work", [f"j-{n}" for n in range(3_000)], 5)
        site.ledger.wait("end", 300)
        if how == "FAILOVER":
            with server.client() as client:
                client.execute_command("FAILOVER")
                wait_until(lambda: client.info("replication")["role"] == "slave", "roles have changed", seconds=20)
        else:
            server.kill()
            with replica.client() as client:
                client.replicaof("NO", "ONE")
        proxy.target = replica.port
        proxy.cut_all()
        errors = producer.answer()["errors"]
        assert {name for name, _ in errors.values()} <= {"StoreUnavailable"}
        site.direct(replica.url)
        site.wait_drained(seconds=60)
        assert all(pool.stop() == 0 for pool in pools)
        while any(site.store.reconcile("default").values()):
            continue
        if how == "FAILOVER":
            verdict = site.verdict()
            assert verdict.duplicates == 0, site.repeats()
        else:
            verdict = judge(site.ledger.read(), site.state_of)
            assert not verdict.unexpected
            assert len(verdict.lost) < 50, "only what the replica had not received yet"
        print(f"\n{how}: {verdict}")
    finally:
        site.close()
        proxy.close()


@pytest.mark.accepts("G04", "R25")
def test_what_a_new_primary_has_forgotten_is_held_by_nobody_for_ever(
    server: RedisServer, replica: RedisServer, tmp_path: Path
) -> None:
    """The workers live on, and have ended jobs that the new primary still shows as running."""
    lease = 6
    proxy = Proxy(server.port)
    site = Site(tmp_path, proxy.url, LEASE=lease)
    try:
        producer, pools = site.producer(), [site.pool(), site.pool()]
        ids = [f"j-{n}" for n in range(1_500)]
        producer.ask("work", ids, 5)
        site.ledger.wait("end", 300)
        with replica.client() as client:
            client.replicaof("NO", "ONE")  # from here on it gets nothing any more, and nobody knows
            forgotten = site.ledger.count("end")
            site.ledger.wait("end", forgotten + 300)
            proxy.target = replica.port
            proxy.cut_all()
        producer.answer()
        site.direct(replica.url)
        held = site.counts()["running"]
        wait_until(lambda: not site.counts()["queued"], "all have been claimed", seconds=60)
        site.wait_drained(seconds=lease + 5)
        assert all(pool.stop() == 0 for pool in pools)
        verdict = judge(site.ledger.read(), site.state_of)
        print(f"\n{held} held by the new primary when it took over: {verdict}")
        assert not verdict.unexpected
        assert not site.counts()["dead"]
    finally:
        site.close()
        proxy.close()
