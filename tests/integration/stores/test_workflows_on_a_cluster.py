"""Workflows on a Cluster of three: steps in queues on different nodes, the workflow on another."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_jobs import PREVIOUS, Batch, chain, group, job
from django_jobs.core.values import Lane
from django_jobs.execution.executor import Executor
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine

pytestmark = [pytest.mark.redis, pytest.mark.survival]
QUEUES = [f"q{n}" for n in range(6)]


@job(name="tests.cluster.step")
def step(*values):
    return list(values)


def run(store: Store) -> int:
    ran = 0
    while True:
        claims = [
            claim
            for queue in QUEUES
            for lane in Lane
            for claim in store.claim(queue, "w", 100, lane=lane, lease=30_000).claims
        ]
        for claim in claims:
            Executor(close_connections=False).run(claim, store)
        ran += len(claims)
        if not claims and not sum(engine.advance(store, queue) for queue in store.unread(QUEUES)):
            return ran


def test_steps_on_different_nodes(cluster_store, clock):
    use_store(cluster_store)
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": {queue: {} for queue in QUEUES}}):
        use_store(cluster_store)
        using = [step.using(queue=queue) for queue in QUEUES]
        for _ in range(5):
            flow = chain(
                using[0].s(1),
                using[1].s(PREVIOUS),
                group(*[each.s(PREVIOUS) for each in using]),
                using[2].s(PREVIOUS),
            ).enqueue()
            with Batch(on_success=using[3].s("success"), on_complete=using[4].s("complete")) as batch:
                for each in using:
                    each.enqueue_many([(n,) for n in range(5)])
            servers = {cluster_store.server_of(queue) for queue in QUEUES}
            assert run(cluster_store) == 9 + 30 + 2
            assert flow.state == batch.handle.state == "succeeded"
            assert flow.wait(0) == [[[[[1]]]] * 6]
        assert len(servers) == 3
        assert cluster_store.count_workflows() == 10
        clock.advance(2 * engine.CHECK)
        for _ in range(2):
            for id in cluster_store.workflows_due(100, 1000):
                engine.check(cluster_store, id, 1000)
            clock.advance(engine.CHECK)
        assert cluster_store.count_workflows() == 0
