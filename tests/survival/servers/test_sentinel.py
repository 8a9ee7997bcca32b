"""A real Sentinel moves the service to the replica: workers and producers follow it by themselves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.backends.redis_process import RedisServer, free_port
from tests.support.checker import judge
from tests.support.pools import Pool, Site
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until
from tests.survival.servers.test_failover import replica

__all__ = ["replica"]
pytestmark = [pytest.mark.survival, pytest.mark.redis]

SERVICE = "orders"


@pytest.fixture
def sentinel(server: RedisServer, replica: RedisServer, tmp_path: Path) -> Iterator[int]:
    """Its port.  It takes a primary that is silent for half a second for dead."""
    port, settings = free_port(), tmp_path / "sentinel.conf"
    settings.write_text(
        f"port {port}\ndir {tmp_path}\nsentinel monitor {SERVICE} 127.0.0.1 {server.port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 500\nsentinel failover-timeout {SERVICE} 3000\n"
        f"sentinel known-replica {SERVICE} 127.0.0.1 {replica.port}\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(
            [server.program.path, str(settings), "--sentinel"], stdout=log, stderr=log, preexec_fn=die_with_parent
        )
    try:
        with redis.Redis(port=port, protocol=2) as client:
            wait_until(lambda: knows_a_replica(client), "it has found the replica", seconds=20)
        yield port
    finally:
        process.kill()
        process.wait(60)


def knows_a_replica(client: redis.Redis) -> bool:
    try:
        # Of all primaries: redis-py 6.4 cannot read its own answer about one.
        return bool(client.sentinel_masters()[SERVICE]["num-slaves"])
    except redis.RedisError:
        return False


def is_primary(server: RedisServer) -> bool:
    """Sentinel closes the connections of a server that it promotes."""
    try:
        with server.client() as client:
            return bool(client.info("replication")["role"] == "master")
    except redis.RedisError:
        return False


def follow(site: Site, server: RedisServer, replica: RedisServer, jobs: int) -> list[Pool]:
    """So many jobs are sent, the primary is killed, and workers and producers go on with the replica.  Returns the
    pools, which have stopped."""
    producer, pools = site.producer(), [site.pool(), site.pool()]
    producer.send("work", jobs, 20)
    site.ledger.wait("end", 40)
    with server.client() as client:
        assert client.wait(1, 5_000) == 1, "the replica has every job"
    server.kill()
    wait_until(lambda: is_primary(replica), "it is the primary now", seconds=20)
    producer.send("work", 20, 1, prefix="after")
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    verdict = judge(site.ledger.read(), site.state_of)
    assert verdict.is_sound, verdict
    assert len(verdict.ended) == jobs + 20
    return pools


@pytest.mark.accepts("G23")
def test_workers_and_producers_follow_a_sentinel_to_the_new_primary(
    server: RedisServer, replica: RedisServer, sentinel: int, tmp_path: Path
) -> None:
    site = Site(tmp_path, f"redis+sentinel://127.0.0.1:{sentinel}/{SERVICE}/0", LEASE=6)
    site.direct(replica.url)
    try:
        follow(site, server, replica, 400)
    finally:
        site.close()
