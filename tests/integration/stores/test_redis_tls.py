"""TLS towards one server and towards a Cluster: with certificates on both sides, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from django_jobs.core.values import Added, Completed
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.support.backends.cluster import running_cluster
from tests.support.backends.servers import server_program
from tests.support.backends.tls import Tls, TlsServer, make_certificates
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

QUEUES = [f"q{i}" for i in range(6)]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    server_program().need_tls()
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(tls: Tls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("redis"), tls).start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster(tls: Tls) -> Iterator[str]:
    with running_cluster(tls=tls) as setting:
        yield setting


def live(store: Store, make_job) -> None:  # type: ignore[no-untyped-def]
    """Jobs from their start to their end, and somebody who waits for one."""
    for queue in QUEUES:
        assert store.enqueue(queue, [make_job(queue, queue=queue)]) == [Added.ADDED]
        end = store.end_of(queue, queue)
        waiters = store.keys.of(queue)["waiters"]
        wait_until(lambda name=waiters: store.transport.command("HLEN", name), "the waiter is known")
        (claim,) = store.claim(queue, "w", 1, lease=30_000).claims
        assert store.complete(queue, [Completed(claim, result=b"42")]) == []
        told = end.result(5)
        assert told is not None
        assert told.result == b"42"
    assert [stats.counts["succeeded"] for stats in store.stats(QUEUES)] == [1] * len(QUEUES)


def test_jobs_live_on_a_server_with_tls_and_a_user(server: TlsServer, make_job, clock: Clock) -> None:  # type: ignore[no-untyped-def]
    store = Store.from_setting(f"{server.url}&client_name=shop")
    try:
        live(store, make_job)
        with server.client() as client:
            assert "shop" in {each["name"] for each in client.client_list()}
    finally:
        store.close()


@pytest.mark.parametrize("others", ["", "&ssl_min_version=TLSv1_3&health_check_interval=30"])
def test_jobs_live_on_a_cluster_with_tls(cluster: str, others: str, make_job) -> None:  # type: ignore[no-untyped-def]
    """`others`: options that redis-py's Cluster client drops without a word."""
    store = Store.from_setting(f"{cluster}{others}&client_name=shop")
    try:
        for queue in QUEUES:
            store.delete(queue, [queue])
        live(store, make_job)
        used = {store.server_of(queue) for queue in QUEUES}
        assert len(used) > 1
        for node in store.transport.client.get_nodes():
            if node.name in used:
                connection = node.redis_connection.connection_pool.make_connection()
                connection.connect()
                assert connection._sock.version() == "TLSv1.3"
                assert connection.health_check_interval == (30 if others else 0)
                connection.disconnect()
    finally:
        store.close()


def test_a_cluster_whose_options_the_client_would_drop_gets_them(tls: Tls, cluster: str) -> None:
    store = Store.from_setting(f"{cluster}&ssl_ciphers=NO-SUCH-CIPHER")
    with pytest.raises(StoreUnavailable):
        store.now()


def test_a_certificate_of_another_authority_is_refused_and_the_options_are_named(
    server: TlsServer, tmp_path: Path
) -> None:
    wrong = make_certificates(tmp_path)
    wrong = server.tls._replace(authority=wrong.authority)
    store = Store.from_setting(f"{server.url.partition('?')[0]}?{wrong.query}")
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed.*ssl_ca_certs") as told:
        store.now()
    assert "s3cret" not in str(told.value)


def test_a_name_that_the_certificate_does_not_have_is_refused_unless_it_is_not_checked(server: TlsServer) -> None:
    named = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match="ssl_check_hostname"):
        Store.from_setting(named).now()
    store = Store.from_setting(f"{named}&ssl_check_hostname=no")
    assert store.now() > 0
    store.close()


def test_a_cluster_without_tls_in_the_address_is_unavailable(cluster: str) -> None:
    parts = urlsplit(cluster)
    with pytest.raises(StoreUnavailable):
        Store.from_setting(f"redis+cluster://{parts.netloc}").now()
