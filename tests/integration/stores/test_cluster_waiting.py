"""How free workers wait on the queues of a Cluster: one connection to each node, told by the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from bench.monitor import sent_commands
from django_jobs.core.values import Lane, NewJob
from django_jobs.exceptions import StoreCorrupt
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.store import ClusterStore
from django_jobs.stores.values.answers import Outlook
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.cluster import running_cluster
from tests.support.backends.servers import server_program
from tests.support.pace import Pace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

QUEUES = [f"q{i}" for i in range(12)]
#: Seconds for what is there already: it is returned at once, and a busy machine may take a while.
PATIENCE = 30
Make = Callable[..., NewJob]


@pytest.fixture
def worker(redis_cluster: str, cluster_store: Store) -> Iterator[ClusterStore]:
    """The store as another process has it, which waits."""
    store = Store.from_setting(redis_cluster, options=cluster_store.options)
    assert isinstance(store, ClusterStore)
    assert store.wait_for_work(QUEUES, 0.01) is None  # from now on the servers tell it
    yield store
    store.close()


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def nodes(setting: str) -> list[tuple[str, int]]:
    hosts = [host.rsplit(":", 1) for host in urlsplit(setting).netloc.split(",")]
    return [(host, int(port)) for host, port in hosts]


def waits(store: Store, beside: ThreadPoolExecutor, **given: Any) -> Future[str | None]:
    """Wait in another thread, until something comes, for at most a minute."""

    def wait() -> str | None:
        ends = monotonic() + 60
        while monotonic() < ends:
            if (found := store.wait_for_work(QUEUES, 2, **given)) is not None:
                return found
        return None

    return beside.submit(wait)


@pytest.mark.timed
def test_a_waiting_worker_is_told_at_once_by_every_node(
    cluster_store: Store, worker: Store, make_job: Make, beside: ThreadPoolExecutor, pace: Pace
) -> None:
    for queue in QUEUES:
        cluster_store.enqueue(queue, [make_job()])  # its name is known from now on
        assert waits(worker, beside).result() == queue
        found = waits(worker, beside)
        cluster_store.claim(queue, "w", 1, lease=30_000)
        began = monotonic()
        cluster_store.enqueue(queue, [make_job()])
        assert found.result() == queue
        pace.within(began, 0.05, "without a wake-up it would be found after two seconds")
        cluster_store.claim(queue, "w", 1, lease=30_000)


def test_a_waiting_worker_sends_nothing(redis_cluster: str, worker: Store) -> None:
    worker.wait_for_work(QUEUES, 0.1)
    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(sent_commands, node, 1.5) for node in nodes(redis_cluster)]
        for _ in range(3):
            worker.wait_for_work(QUEUES, 0.6)
        assert [count.result() for count in counts] == [0, 0, 0]


def test_what_came_while_nobody_waited_is_found(cluster_store: Store, worker: Store, make_job: Make) -> None:
    cluster_store.enqueue("q3", [make_job()])
    cluster_store.enqueue("q8", [make_job()])
    assert {worker.wait_for_work(QUEUES, PATIENCE) for _ in range(2)} == {"q3", "q8"}
    assert worker.wait_for_work(QUEUES, 0.05) is None


def test_one_token_goes_to_one_worker(
    cluster_store: Store, worker: Store, make_job: Make, beside: ThreadPoolExecutor
) -> None:
    both = [waits(worker, beside), waits(worker, beside)]  # two threads: each has its own connections
    cluster_store.enqueue("q3", [make_job()])
    wait_until(lambda: [each.done() for each in both].count(True) == 1, "one of them is woken")
    cluster_store.enqueue("q5", [make_job()])
    assert {each.result() for each in both} == {"q3", "q5"}


def test_a_worker_takes_no_token_of_a_queue_that_it_does_not_serve(
    cluster_store: Store, worker: Store, make_job: Make
) -> None:
    cluster_store.enqueue("q3", [make_job()])
    assert worker.wait_for_work([queue for queue in QUEUES if queue != "q3"], 0.2) is None
    assert worker.wait_for_work(QUEUES, 2, lane=Lane.ALONE) is None
    assert worker.wait_for_work(QUEUES, PATIENCE) == "q3"


def test_passed_over_offers_stay_until_they_are_wanted(cluster_store: Store, worker: Store) -> None:
    cluster_store.transport.command("RPUSH", cluster_store.keys.of("q3")["offer"], "1")
    assert worker.wait_for_work(QUEUES, 0.2, passed_over=["q3"]) is None
    assert worker.wait_for_work(QUEUES, PATIENCE) == "q3"


def test_a_key_of_another_type_is_reported(cluster_store: Store, worker: Store) -> None:
    cluster_store.transport.command("SET", cluster_store.keys.of("q3")["wake"], "x")
    with pytest.raises(StoreCorrupt):
        worker.wait_for_work(QUEUES, 2)


def test_a_cut_connection_is_opened_again(
    redis_cluster: str, cluster_store: Store, worker: Store, make_job: Make, beside: ThreadPoolExecutor
) -> None:
    found = waits(worker, beside)
    for host, port in nodes(redis_cluster):
        with redis.Redis(host=host, port=port) as node:
            node.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    for queue in QUEUES:
        cluster_store.enqueue(queue, [make_job()])
    assert found.result() is not None
    others = {worker.wait_for_work(QUEUES, 2) for _ in range(11)}
    assert {found.result(), *others} >= set(QUEUES)


def test_a_flushed_node_is_no_reason_to_sleep(
    redis_cluster: str, cluster_store: Store, worker: Store, make_job: Make
) -> None:
    for host, port in nodes(redis_cluster):
        with redis.Redis(host=host, port=port) as node:
            node.flushall()
    cluster_store.enqueue("q3", [make_job()])
    assert worker.wait_for_work(QUEUES, PATIENCE) == "q3"


@pytest.mark.timed
def test_without_the_right_to_track_it_waits_on_one_queue_at_a_time(make_job: Make, clock: Any, pace: Pace) -> None:
    server_program().need_rules_for_parts_of_commands()
    with running_cluster() as setting:
        for host, port in nodes(setting):
            with redis.Redis(host=host, port=port) as node:
                node.execute_command(
                    *["ACL", "SETUSER", "old", "on", ">secret", "~*", "&*", "+@all", "-client|tracking"]
                )
        store = Store.from_setting(
            setting.replace("://", "://old:secret@"), options=StoreOptions(namespace="refused", clock=clock)
        )
        try:
            store.enqueue("q3", [make_job()])
            wait_until(lambda: store.wait_for_work(["q3", "q5"], 2) == "q3", "it is found all the same")
            began = monotonic()
            assert store.wait_for_work(["q3", "q5"], 2) is None
            pace.within(began, 1, "it waits on one queue: the caller then checks the others")
        finally:
            store.close()


def test_queues_that_move_to_another_node_are_read_and_waited_for_there(make_job: Make, clock: Any) -> None:
    with running_cluster() as setting:
        options = StoreOptions(namespace="moving", clock=clock)
        producer, worker = (Store.from_setting(setting, options=options) for _ in range(2))
        try:
            for queue in QUEUES:
                producer.enqueue(queue, [make_job()])
                producer.claim(queue, "w", 1, lease=30_000)
            assert {worker.wait_for_work(QUEUES, PATIENCE) for _ in QUEUES} == set(QUEUES)
            assert worker.wait_for_work(QUEUES, 0.05) is None
            move_slot(setting, producer.keys.of("q3")["jobs"])
            producer.enqueue("q3", [make_job()])
            expected = dict.fromkeys(QUEUES, Outlook(0, None)) | {"q3": Outlook(1, None)}
            assert worker.outlook(QUEUES) == expected
            assert worker.unread(QUEUES) == []
            wait_until(lambda: worker.wait_for_work(QUEUES, 0.5) == "q3", "it waits at the new node")
        finally:
            producer.close()
            worker.close()


def move_slot(setting: str, key: str) -> None:
    """Move the slot of the key to another node, as `redis-cli --cluster reshard` does."""
    clients = [redis.Redis(host=host, port=port) for host, port in nodes(setting)]
    slot = clients[0].execute_command("CLUSTER", "KEYSLOT", key)
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
    source = next(i for i, client in enumerate(clients) if has_slot(client, slot))
    target = (source + 1) % len(clients)
    clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    host, port = nodes(setting)[target]
    while some := clients[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        clients[source].execute_command("MIGRATE", host, port, "", 0, 5000, "KEYS", *some)
    for client in (clients[target], clients[source], *clients):
        client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    for client in clients:
        client.close()


def has_slot(client: redis.Redis, slot: int) -> bool:
    name = client.execute_command("CLUSTER", "MYID").decode()
    shards = client.execute_command("CLUSTER", "SLOTS")
    return any(first <= slot <= last and home[2].decode() == name for first, last, home in shards)
