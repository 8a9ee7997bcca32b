"""Nodes of a Redis Cluster that are silent or dead: what their queues cost the others, and what is said."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from django_jobs.core.values import Ended, NewJob, State
from django_jobs.exceptions import StoreMisconfigured, StoreUnavailable
from django_jobs.stores.redis import Store
from django_jobs.workflows import end_calls
from tests.contract.acts import FAILED
from tests.integration.workers import WorkerSite
from tests.support.backends.cluster import running_cluster
from tests.support.backends.redis_process import RedisServer
from tests.support.pace import Pace
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

QUEUES = [f"q{i}" for i in range(12)]
LEASE = 30_000


class Frail:
    """A cluster whose nodes can be harmed."""

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self.store = Store.from_setting(setting)
        client = self.store.transport.client
        names = self.store.keys.of
        self.node_of = {queue: client.get_node_from_key(names(queue)["jobs"]).name for queue in QUEUES}
        self.pids = {}
        for name in set(self.node_of.values()):
            host, port = name.rsplit(":", 1)
            with redis.Redis(host=host, port=int(port)) as node:
                self.pids[name] = node.info("server")["process_id"]

    def parted(self) -> tuple[str, str]:
        """Two queues of different nodes: of the one where slot 0 is, whom the driver asks what concerns no key, and of
        another."""
        client = self.store.transport.client
        first = client.nodes_manager.slots_cache[0][0].name
        on_first = next(queue for queue in QUEUES if self.node_of[queue] == first)
        return on_first, next(queue for queue in QUEUES if self.node_of[queue] != first)

    @contextmanager
    def silent(self, queue: str) -> Iterator[None]:
        pid = self.pids[self.node_of[queue]]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill(self, *queues: str) -> None:
        for name in {self.node_of[queue] for queue in queues}:
            send_signal(self.pids[name], signal.SIGKILL)


@pytest.fixture
def frail() -> Iterator[Frail]:
    # The other nodes take no notice within the test, so that each failure is that of the harmed one.
    with running_cluster("--cluster-node-timeout", "60000") as setting:
        made = Frail(setting)
        yield made
        made.store.close()


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        call()


@pytest.mark.timed
def test_a_silent_node_is_given_up_within_five_seconds_and_holds_up_no_other(frail: Frail, pace: Pace) -> None:
    lost, healthy = frail.parted()
    for queue in QUEUES:
        frail.store.extend(queue, ["w"], LEASE)
    with frail.silent(lost):
        pace.took(seconds(lambda: refused(lambda: frail.store.extend(lost, ["w"], LEASE))), 5)
        pace.took(seconds(lambda: frail.store.extend(healthy, ["w"], LEASE)), 0.5)
    assert frail.store.extend(lost, ["w"], LEASE) == {}


def test_who_has_a_queue_is_told_without_asking_anybody(frail: Frail) -> None:
    frail.kill(*QUEUES)
    frail.store.close()  # as before each fork
    assert {queue: frail.store.server_of(queue) for queue in QUEUES} == frail.node_of
    assert Store.from_setting(frail.setting).server_of("q1") == ""


def test_a_process_that_starts_beside_a_dead_node_works_with_the_others(frail: Frail, pace: Pace) -> None:
    lost, healthy = frail.parted()
    frail.kill(lost)
    fresh = Store.from_setting(frail.setting)
    assert fresh.extend(healthy, ["w"], LEASE) == {}
    assert fresh.now() > 0
    pace.took(seconds(lambda: refused(lambda: fresh.extend(lost, ["w"], LEASE))), 5)
    fresh.close()


def test_a_cluster_without_a_living_node_is_unavailable(frail: Frail) -> None:
    frail.kill(*QUEUES)
    refused(lambda: frail.store.extend("q1", ["w"], LEASE))
    refused(lambda: frail.store.backlog(QUEUES))
    refused(frail.store.now)
    refused(lambda: Store.from_setting(frail.setting).extend("q1", ["w"], LEASE))


def test_a_cluster_with_slots_that_nobody_serves_is_unavailable(frail: Frail) -> None:
    lost, _ = frail.parted()
    client = frail.store.transport.client
    key = frail.store.keys.of(lost)["jobs"]
    node = client.get_node_from_key(key).redis_connection
    assert node is not None
    node.execute_command("CLUSTER", "DELSLOTS", client.keyslot(key))
    refused(lambda: frail.store.extend(lost, ["w"], LEASE))


def test_a_worker_renews_its_leases_on_the_other_nodes_while_one_is_silent(frail: Frail, tmp_path: Path) -> None:
    lost, healthy = frail.parted()
    site = WorkerSite(tmp_path, frail.setting, QUEUES={lost: {}, healthy: {}, "default": {}}, LEASE=12)
    leases = frail.store.keys.of(healthy)["leases"]

    def end_of_lease() -> float:
        scores = frail.store.transport.command("ZRANGE", leases, 0, -1, "WITHSCORES")
        return max(float(score) for score in scores[1::2])

    try:
        site.pool()
        site.put("work", 60_000, queue=healthy)
        site.ledger.wait("start", 1, seconds=30)
        with frail.silent(lost):
            first = end_of_lease()
            # What it learnt before the silence could explain one more beat, not that it goes on.
            wait_until(lambda: end_of_lease() > first + 3_000, "it is renewed all the same", seconds=11)
    finally:
        site.close()


def test_jobs_go_to_the_queues_of_other_nodes_while_one_is_silent(
    frail: Frail, make_job: Callable[..., NewJob], caplog: pytest.LogCaptureFixture
) -> None:
    away, here = frail.parted()
    other = next(queue for queue in QUEUES if frail.node_of[queue] not in (frail.node_of[away], frail.node_of[here]))
    store = frail.store
    store.enqueue(here, [make_job(id) for id in "abc"])
    claims = store.claim(here, "w", 3, lease=LEASE).claims
    goals = {"a": away, "b": other, "c": away}
    store.settle(here, [Ended(each, "retry", FAILED, queue=goals[each.id]) for each in claims])
    store.enqueue(other, [make_job("resident")])  # its name is known
    with frail.silent(away):
        assert end_calls.follow(store, here) == 1
        assert store.get(other, "b") is not None
    assert f"Jobs cannot go from queue {here!r} to {away!r} now" in caplog.text
    assert end_calls.follow(store, here) == 2
    assert [info.id for info in store.page(away, State.RETRY)] == ["a", "c"]


def test_a_server_that_is_no_node_of_a_cluster_is_named_with_the_remedy(tmp_path: Path) -> None:
    server = RedisServer(tmp_path).start()
    try:
        with pytest.raises(StoreMisconfigured, match=r"is not a Cluster.*redis://"):
            Store.from_setting(f"redis+cluster://127.0.0.1:{server.port}").now()
    finally:
        server.close()


def test_more_threads_than_the_driver_would_give_connections_wait_at_once(frail: Frail) -> None:
    failures: list[BaseException] = []
    together = threading.Barrier(120)

    def wait() -> None:
        try:
            together.wait(120)
            frail.store.wait_for_work(["q1"], 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=wait) for _ in range(120)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
