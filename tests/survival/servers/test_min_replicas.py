"""MIN_REPLICAS: an at-most-once job starts only when its claim has reached a replica, else it waits, uncounted."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from django.test import override_settings

from django_jobs import job
from django_jobs.core.outcome import SnoozeFor, Succeeded
from django_jobs.core.values import Claim, Controls, Job, Lane, NewJob, State
from django_jobs.execution.executor import Executor
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.support.backends.redis_process import RedisServer
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]

ran: list[str] = []


@job(name="tests.replicas.charge", delivery="at_most_once")
def charge() -> None:
    ran.append("charge")


@job(name="tests.replicas.mail")
def mail() -> None:
    ran.append("mail")


@pytest.fixture
def replica(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with server.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)
    replica = RedisServer(tmp_path_factory.mktemp("replica"), "--replicaof", "127.0.0.1", str(server.port)).start()
    with replica.client() as client:
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "it has synchronised", seconds=20)
    yield replica
    replica.close()


@pytest.fixture
def store(server: RedisServer) -> Iterator[Store]:
    ran.clear()
    store = Store.from_setting(server.url)
    with override_settings(DJANGO_JOBS={"STORE": server.url, "MIN_REPLICAS": 1}):
        yield store
    store.close()


def claimed(store: Store, name: str) -> Claim:
    controls = Controls(at_most_once=name.endswith("charge"))
    record = encode(Job("a", "default", name, b"[[],{}]", 1, controls=controls))
    store.enqueue("default", [NewJob("a", record, controls)])
    return again(store, Lane.ALONE if controls.at_most_once else Lane.SHARED)


def again(store: Store, lane: Lane = Lane.ALONE) -> Claim:
    found: list[Claim] = []

    def claim() -> bool:
        found.extend(store.claim("default", "w", 1, lane=lane, lease=60_000).claims)
        return bool(found)

    wait_until(claim, "it may be claimed", seconds=5)
    return found[0]


def test_with_a_replica_it_starts(store: Store, replica: RedisServer) -> None:
    attempted = Executor().run(claimed(store, "tests.replicas.charge"), store)
    assert isinstance(attempted.outcome, Succeeded)
    assert ran == ["charge"]


def test_without_it_waits_uncounted_and_starts_once_when_one_is_back(
    store: Store, replica: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobs.execution.replicas._last_told", -1e9)
    assert replica.process is not None
    send_signal(replica.process.pid, signal.SIGSTOP)
    attempted = Executor().run(claimed(store, "tests.replicas.charge"), store)
    assert isinstance(attempted.outcome, SnoozeFor)
    assert ran == []
    assert "MIN_REPLICAS" in caplog.text
    found = store.get("default", "a")
    assert found is not None
    assert (found.state, found.failures, found.crashes) == (State.SCHEDULED, 0, 0)

    send_signal(replica.process.pid, signal.SIGCONT)
    assert isinstance(Executor().run(again(store), store).outcome, Succeeded)
    assert ran == ["charge"]


def test_a_claim_that_a_failover_forgot_does_not_start(store: Store, replica: RedisServer) -> None:
    claim = claimed(store, "tests.replicas.charge")
    store.transport.client.hdel(store.keys.of("default")["claims"], "a")
    assert not store.is_replicated(claim, 1, 1_000)


def test_other_jobs_wait_for_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "is_replicated", None)
    assert isinstance(Executor().run(claimed(store, "tests.replicas.mail"), store).outcome, Succeeded)
    assert ran == ["mail"]
