"""Queues spread over a Redis Cluster: every verb works there, because no call touches two queues."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobs.core.values import Added, Attempt, Completed, Lane, State
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.ends import AGAIN
from django_jobs.stores.redis.store import ClusterStore
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

QUEUES = [f"q{i}" for i in range(12)]


@pytest.mark.accepts("G22")
def test_queues_spread_over_the_nodes_and_each_lives_on_one(cluster_store: Store, make_job: Any) -> None:
    for queue in QUEUES:
        cluster_store.enqueue(queue, [make_job()])
    client = cluster_store.transport.client
    slots = {queue: {client.keyslot(key) for key in cluster_store.keys.of(queue).values()} for queue in QUEUES}
    assert all(len(of_one) == 1 for of_one in slots.values())
    nodes = {client.get_node_from_key(cluster_store.keys.of(queue)["jobs"]).name for queue in QUEUES}
    assert len(nodes) > 1
    assert cluster_store.queues() == sorted(QUEUES)


@pytest.mark.accepts("G22")
def test_a_job_lives_its_whole_life(cluster_store: Store, make_job: Any, clock: Any) -> None:
    assert isinstance(cluster_store, ClusterStore)
    for queue in QUEUES:
        jobs = [make_job(f"{queue}-{i}") for i in range(20)]
        assert cluster_store.enqueue(queue, jobs) == [Added.ADDED] * 20
    assert cluster_store.backlog(QUEUES) == dict.fromkeys(QUEUES, 20)
    assert cluster_store.outlook(QUEUES) == dict.fromkeys(QUEUES, (20, None))
    assert cluster_store.wait_for_work(QUEUES[:1], 1) == QUEUES[0]
    for queue in QUEUES:
        claims = cluster_store.claim(queue, "w", 20, lease=30_000).claims
        assert cluster_store.extend(queue, ["w"], 30_000) == {"w": []}
        assert cluster_store.complete(queue, [Completed(claim) for claim in claims[:17]]) == []
        assert cluster_store.retry(claims[17], Attempt(1, "failed", 0, error="x"), 1000) is State.RETRY
        assert cluster_store.bury(claims[18], Attempt(1, "failed", 0, error="x"))
        assert [job.state for job in cluster_store.recover(queue, worker="w")] == [State.QUEUED]
        clock.advance(1000)
        assert cluster_store.promote(queue) == 1
        assert cluster_store.revive(queue, [claims[18].id]) == [claims[18].id]
        assert cluster_store.backlog([queue], lane=Lane.ALONE) == {queue: 1}
        assert cluster_store.cancel(queue, [claims[17].id]) == {claims[17].id: State.CANCELLED}
        assert cluster_store.delete(queue, [claims[17].id]) == [claims[17].id]
        assert cluster_store.reconcile(queue) == dict.fromkeys(cluster_store.reconcile(queue), 0)
        assert len(cluster_store.page(queue, State.SUCCEEDED, 0, 50)) == 17
    counts = [stats.counts for stats in cluster_store.stats(QUEUES)]
    assert {(of_one["succeeded"], of_one["queued"]) for of_one in counts} == {(17, 2)}
    found = cluster_store.find(QUEUES, "q7-0")
    assert found is not None
    assert found.queue == "q7"


@pytest.mark.parametrize("queue", ["~", "~a"])
def test_a_queue_may_be_named_like_a_place_of_calls(cluster_store: Store, make_job: Any, queue: str) -> None:
    cluster_store.enqueue(queue, [make_job("a")])
    cluster_store.wake([queue])
    assert cluster_store.archive_turns([queue], "archiver", 1000) == []
    (claimed,) = cluster_store.claim(queue, "w", 1, lease=30_000).claims
    assert cluster_store.complete(queue, [Completed(claimed)]) == []
    cluster_store.prune(queue)


def test_the_fleet_s_own_keys_work(cluster_store: Store) -> None:
    assert cluster_store.publish_worker("one", {"pid": 1}, 60_000) == []
    assert cluster_store.command_worker("one", "stop")
    assert cluster_store.publish_worker("one", {"pid": 1}, 60_000) == ["stop"]
    assert [worker.name for worker in cluster_store.workers()] == ["one"]
    cluster_store.update_document("bulk", {"a": {"n": 1}})
    assert cluster_store.get_document("bulk") == {"a": {"n": 1}}
    cluster_store.forget_worker("one")
    assert cluster_store.workers() == []


def test_a_script_that_left_the_cache_is_loaded_again(cluster_store: Store, make_job: Any) -> None:
    cluster_store.enqueue("q1", [make_job()])
    cluster_store.transport.client.script_flush()
    assert cluster_store.enqueue("q1", [make_job()]) == [Added.ADDED]


def test_the_doctor_reads_the_nodes(cluster_store: Store) -> None:
    told = cluster_store.describe()
    assert told["server"] in ("redis", "valkey")
    assert told["version"] != "unknown"
    assert told["eviction_policy"] == "noeviction"


def test_whoever_waits_is_told_on_every_node(cluster_store: Store, make_job: Any) -> None:
    ends = {}
    for queue in QUEUES:
        cluster_store.enqueue(queue, [make_job(queue, queue=queue)])
        ends[queue] = cluster_store.end_of(queue, queue)
    for queue in QUEUES:
        name = cluster_store.keys.of(queue)["waiters"]
        wait_until(lambda name=name: cluster_store.transport.command("HLEN", name), "the waiter is known")
        claims = cluster_store.claim(queue, "w", 1, lease=30_000).claims
        cluster_store.complete(queue, [Completed(claims[0])])
        info = ends[queue].result(AGAIN / 3)  # well before the listener asks by itself
        assert info is not None
        assert info.state is State.SUCCEEDED


class ClusterFactory:
    """What a project writes to use a Cluster in its cache: django-redis has nothing for it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def connect(self, url: str) -> redis.RedisCluster:
        return redis.RedisCluster.from_url(url, protocol=2)


def test_an_alias_of_a_cluster_is_refused_with_the_address_to_write(redis_cluster: str) -> None:
    nodes = redis_cluster.partition("://")[2]
    location = f"redis://{nodes.partition(',')[0]}"
    factory = f"{__name__}.ClusterFactory"
    backend = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": location,
        "OPTIONS": {"CONNECTION_FACTORY": factory},
    }
    with (
        override_settings(CACHES={"default": backend}),
        pytest.raises(ImproperlyConfigured, match=r"'redis\+cluster://127\.0\.0\.1:\d+,127.*rediss for TLS"),
    ):
        Store.from_setting("cache:default")
