"""Sentinels with TLS and passwords of their own move the service to the replica: workers and producers follow."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis import Store
from tests.support.backends.redis_process import free_port
from tests.support.backends.servers import server_program
from tests.support.backends.tls import Tls, TlsServer, make_certificates
from tests.support.pools import Site
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until
from tests.survival.servers.test_failover import follows
from tests.survival.servers.test_sentinel import follow, knows_a_replica

pytestmark = [pytest.mark.survival, pytest.mark.redis]

SERVICE = "orders"
#: Who may ask the Sentinel, and as whom it looks after the servers.
ASKER, ASKERS_PASSWORD, WRONG_PASSWORD = "asker", "an0ther", "wr0ng"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    server_program().need_tls()
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(tls: Tls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("redis"), tls, "--repl-diskless-sync-delay", "0").start()
    yield server
    server.close()


@pytest.fixture
def replica(server: TlsServer, tls: Tls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    of = ("--replicaof", "127.0.0.1", str(server.port))
    replica = TlsServer(tmp_path_factory.mktemp("replica"), tls, *of).start()
    try:
        wait_until(lambda: follows(replica), "it has synchronised", seconds=20)
        yield replica
    finally:
        replica.close()


@pytest.fixture
def sentinel(server: TlsServer, replica: TlsServer, tls: Tls, tmp_path: Path) -> Iterator[int]:
    """Its port.  It takes a primary that is silent for half a second for dead."""
    port, settings = free_port(), tmp_path / "sentinel.conf"
    user, password = TlsServer.USER
    settings.write_text(
        f"port 0\ntls-port {port}\ntls-replication yes\ntls-ca-cert-file {tls.authority}\n"
        f"tls-cert-file {tls.certificate}\ntls-key-file {tls.key}\ndir {tmp_path}\n"
        f"user {ASKER} on >{ASKERS_PASSWORD} ~* &* +@all\nuser default off\n"
        f"sentinel monitor {SERVICE} 127.0.0.1 {server.port} 1\n"
        f"sentinel auth-user {SERVICE} {user}\nsentinel auth-pass {SERVICE} {password}\n"
        f"sentinel down-after-milliseconds {SERVICE} 500\nsentinel failover-timeout {SERVICE} 3000\n"
        f"sentinel known-replica {SERVICE} 127.0.0.1 {replica.port}\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(
            [server.program.path, str(settings), "--sentinel"], stdout=log, stderr=log, preexec_fn=die_with_parent
        )
    try:
        who = {"username": ASKER, "password": ASKERS_PASSWORD}
        with redis.Redis("127.0.0.1", port, protocol=2, **who, **tls.client) as client:
            wait_until(lambda: knows_a_replica(client), "it has found the replica", seconds=20)
        yield port
    finally:
        process.kill()
        process.wait(60)


def address(port: int, tls: Tls, password: str = ASKERS_PASSWORD) -> str:
    user = ":".join(TlsServer.USER)
    own = f"sentinel_username={ASKER}&sentinel_password={password}"
    return f"rediss+sentinel://{user}@127.0.0.1:{port}/{SERVICE}/0?{own}&{tls.query}"


@pytest.mark.accepts("G23")
def test_workers_follow_a_sentinel_with_tls_and_users_to_the_new_primary(
    server: TlsServer, replica: TlsServer, tls: Tls, sentinel: int, tmp_path: Path
) -> None:
    site = Site(tmp_path, address(sentinel, tls), LEASE=6)
    site.direct(replica.url)
    try:
        pools = follow(site, server, replica, 200)
        told = "".join(pool.text() for pool in pools)
        assert ASKERS_PASSWORD not in told
        assert TlsServer.USER[1] not in told
    finally:
        site.close()


def test_a_sentinel_that_refuses_the_password_is_told_with_the_options(sentinel: int, tls: Tls) -> None:
    with pytest.raises(StoreUnavailable, match="sentinel_username and sentinel_password") as told:
        Store.from_setting(address(sentinel, tls, WRONG_PASSWORD)).now()
    text = "".join(traceback.format_exception(told.value))
    assert WRONG_PASSWORD not in text
    assert TlsServer.USER[1] not in text
