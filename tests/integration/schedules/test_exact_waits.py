"""A worker that waits for a job that is due does not depend on how often the server looks at its clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread, Timer
from time import monotonic
from typing import Any

import pytest
import redis

from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.transport import DEADLINE
from django_jobs.stores.redis.connection.waits import PATIENCE, Waits
from django_jobs.stores.values.options import StoreOptions
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from tests.support.backends.cluster import running_cluster
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.pace import Pace

pytestmark = pytest.mark.redis

Q = "default"
#: Users, by the address that they use: one that may run any command, and one that may not end waits.
FREE, OLD = "", "old:secret@"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that looks once a second which waits are over, and has nothing else to do."""
    server = RedisServer(tmp_path / "redis", "--hz", "1", append_only=False).start()
    yield server
    server.close()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[RedisServer]:
    second = RedisServer(tmp_path / "second", append_only=False).start()
    yield second
    second.close()


def store_of(server: RedisServer, user: str = FREE) -> Store:
    return Store.from_setting(f"redis://{user}127.0.0.1:{server.port}/0", options=StoreOptions())


def refused(client: redis.Redis) -> int:
    """How many calls of CLIENT UNBLOCK the server has refused, or not known; they count whatever user they are of."""
    stats = client.info("commandstats")
    return sum(stats.get(name, {}).get("rejected_calls", 0) for name in ("cmdstat_client", "cmdstat_client|unblock"))


@pytest.mark.timed
@pytest.mark.accepts("G07", "G57")
def test_a_job_starts_on_time_on_a_server_that_seldom_looks_at_its_clock(
    server: RedisServer, make_job: Any, pace: Pace
) -> None:
    with closing(store_of(server)) as store:
        worker = Fetcher(
            store, "w", [QueueSettings(Q)],
            lane=Lane.SHARED, lease=30_000, strict=False, gate=Gate(), clock=StoreClock(), size=lambda queue: 1,
        )  # fmt: skip
        late = []
        for n in range(7):
            due = store.now() + 150 + 37 * n
            store.enqueue(Q, [make_job(f"job-{n}", run_at=due)])
            while (fetched := worker.fetch()) is None or not fetched[1].claims:
                pass
            late.append((store.now() - due) / 1000)
        assert min(late) >= 0, "never before its time"
        pace.took(max(late), 0.1, f"after its time: {late}")


@pytest.mark.timed
def test_a_worker_of_one_queue_on_a_cluster_is_as_exact(make_job: Any, pace: Pace) -> None:
    with running_cluster() as setting, closing(Store.from_setting(setting, options=StoreOptions())) as store:
        store.transport.client.config_set("hz", 1, target_nodes="primaries")
        store.wait_for_work([Q], 0.01)
        for _ in range(3):
            began = monotonic()
            assert store.wait_for_work([Q], 0.3) is None
            assert monotonic() - began >= 0.3
            pace.within(began, 0.3 + 0.1, "the wait")
        store.enqueue(Q, [make_job()])
        assert store.wait_for_work([Q], 0.3) == Q


@pytest.mark.timed
@pytest.mark.parametrize("seconds", [0.01, 0.3, 1.9])
def test_a_wait_ends_when_its_time_is_over(server: RedisServer, pace: Pace, seconds: float) -> None:
    with closing(store_of(server)) as store:
        store.wait_for_work([Q], 0.01)
        for _ in range(3):
            began = monotonic()
            assert store.wait_for_work([Q], seconds) is None
            assert monotonic() - began >= seconds
            pace.within(began, seconds + 0.1, "the wait")


def test_an_idle_worker_sends_nothing_to_end_its_waits(server: RedisServer) -> None:
    with closing(store_of(server)) as store, server.client() as client:
        store.now()  # it is connected
        client.config_resetstat()
        assert store.wait_for_work([Q], 60) is None
        assert {name for name in client.info("commandstats") if not name.startswith("cmdstat_config")} == {
            "cmdstat_blpop"
        }


def test_a_user_who_may_not_end_waits_is_refused_once_and_waits_for_the_server(server: RedisServer) -> None:
    server.program.need_rules_for_parts_of_commands()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "old", "on", ">secret", "~*", "+@all", "-client|unblock")
        with closing(store_of(server, OLD)) as store:
            for _ in range(4):
                assert store.wait_for_work([Q], 0.05) is None
            store.wake([Q])
            assert store.wait_for_work([Q], 0.05) == Q
        assert refused(client) == 1


def test_a_user_who_may_not_learn_the_number_of_a_connection_waits_for_the_server(server: RedisServer) -> None:
    server.program.need_rules_for_parts_of_commands()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "old", "on", ">secret", "~*", "+@all", "-client|id", "-client|unblock")
        with closing(store_of(server, OLD)) as store:
            for _ in range(3):
                assert store.wait_for_work([Q], 0.05) is None
            assert [entry["count"] for entry in client.acl_log()] == [1]


def test_a_wait_that_ends_while_the_server_is_busy_is_not_the_last_that_is_exact(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[str] = []
    refused = Waits._refused
    monkeypatch.setattr(Waits, "_refused", lambda self, error: (refusals.append(str(error)), refused(self, error)))
    with closing(store_of(server)) as store, server.client() as client, server.client() as other:
        client.config_set("lua-time-limit", 10)
        store.wait_for_work([Q], 0.05)
        acts = [Timer(0.1, run_until_killed, [client]), Timer(0.8, other.script_kill)]
        for act in acts:
            act.start()
        assert store.wait_for_work([Q], 0.4) is None
        for act in acts:
            act.join()
        assert "BUSY" in "".join(refusals)
        assert store.transport._waits._may_end


def run_until_killed(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match=r"(?i)killed"):
        client.eval("while true do end", 0)


def test_a_wake_up_at_the_end_of_a_wait_is_not_lost(server: RedisServer) -> None:
    """It comes as the wait is ended, and the next calls on the connection get their own replies."""
    with closing(store_of(server)) as store, closing(store_of(server)) as other:
        for n in range(200):
            waking = Thread(target=other.wake, args=([Q],))
            waking.start()
            woken = store.wait_for_work([Q], 0.01)
            waking.join()
            assert woken == Q or store.wait_for_work([Q], 0.05) == Q, n
            assert store.backlog([Q]) == {Q: 0}
            assert store.now() > 0


def test_a_server_that_falls_silent_is_noticed_as_soon_as_before(server: RedisServer, pace: Pace) -> None:
    """Neither the wait nor the call that is to end it is answered."""
    proxy = Proxy(server.port)
    store = Store.from_setting(proxy.url, options=StoreOptions())
    store.wait_for_work([Q], 0.05)
    proxy.silent.set()
    began = monotonic()
    with pytest.raises(StoreUnavailable):
        store.wait_for_work([Q], 0.5)
    pace.within(began, 0.5 + PATIENCE + DEADLINE, "a wait, and the tries after it")
    proxy.heal()
    assert store.wait_for_work([Q], 0.05) is None
    store.close()
    proxy.close()


def client_id(connection: redis.Connection) -> int:
    connection.send_command("CLIENT", "ID")
    number: int = connection.read_response()
    return number


def test_no_wait_is_ended_on_another_server(server: RedisServer, second: RedisServer) -> None:
    """After a failover, a new connection leads to a server where the number is somebody else's."""
    with closing(store_of(server)) as store, second.client() as others:
        store.wait_for_work([Q], 0.01)
        number = store.transport._connection().client_id
        stranger = others.connection_pool.make_connection()
        while client_id(stranger) < number:
            stranger = others.connection_pool.make_connection()
        assert client_id(stranger) == number
        stranger.send_command("BLPOP", "theirs", 60)
        store.transport.pool.connection_kwargs["port"] = second.port
        store.transport.pool._available_connections.clear()

        assert store.wait_for_work([Q], 0.05) is None
        assert others.info("clients")["blocked_clients"] == 1
        stranger.disconnect()
