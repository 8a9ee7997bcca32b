"""A Redis at maxmemory: what frees memory works, and so do the operations that people run to free it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from django_jobs import Batch, Workflow, chain, job
from django_jobs.core.values import Ended, State
from django_jobs.exceptions import StoreFull
from django_jobs.execution.executor import Executor
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from django_jobs.worker.child.settler import Settler
from django_jobs.worker.maintenance.agenda import workflows
from django_jobs.workflows import end_calls
from tests.contract.acts import FAILED, Q, claim, enqueue
from tests.support.backends.servers import running_redis
from tests.support.fsck import fsck

pytestmark = pytest.mark.redis


@pytest.fixture
def full_store(make_job) -> Iterator[Store]:
    """A store with two jobs in each of some places, whose server takes no more."""
    with running_redis() as url:
        store = Store.from_setting(url, options=StoreOptions(namespace="full"))
        locked = {"unique": "ab" * 32, "unique_mode": "running"}
        limited = {"limit_key": "k", "limit": 1}
        enqueue(store, make_job("limited-1", priority=9, **limited), make_job("limited-2", priority=9, **limited))
        claim(store, 2)
        enqueue(store, make_job("locked", **locked), make_job("later", run_in=60_000), make_job("queued"))
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory", "1mb")
            yield store
        store.close()


def test_jobs_are_deleted_wherever_they_wait(full_store: Store, make_job) -> None:
    with pytest.raises(StoreFull):
        enqueue(full_store, make_job("more"))
    ids = ["limited-2", "locked", "later", "queued"]
    assert full_store.delete(Q, ids) == ids
    assert full_store.kill(Q, ["limited-1"], "by hand") == ["limited-1"]
    full_store.release_worker(Q, "w")
    assert full_store.delete(Q, ["limited-1"]) == ["limited-1"]


def test_attempts_end_in_every_way_in_one_call(make_job) -> None:
    verbs = ("retry", "snooze", "bury", "discard", "park") * 10
    with running_redis() as url, redis.Redis.from_url(url) as client:
        store = Store.from_setting(url, options=StoreOptions(archive=True))
        enqueue(store, *[make_job(f"{n:02}", name=f"shop.job{n % 3}") for n in range(60)])
        claims = claim(store, 60)
        store.settle(Q, [Ended(each, "bury", FAILED) for each in claims[50:55]])  # the server knows the script
        client.config_set("maxmemory", "1mb")
        ended = [
            Ended(each, verb, None if verb in ("snooze", "park") else FAILED, 60_000, knows="x")
            for each, verb in zip(claims, verbs, strict=False)
        ]
        states = [State.RETRY, State.SCHEDULED, State.DEAD, State.CANCELLED, State.BLOCKED] * 10
        assert store.settle(Q, ended) == states
        assert [store.get(Q, each.id).state for each in claims[:50]] == states  # type: ignore[union-attr]
        assert sum(group.jobs for group in store.failure_groups([Q], State.DEAD)) == 15
        assert sum(group.jobs for group in store.failure_groups([Q], State.RETRY)) == 10
        assert store.settle(Q, ended) == [None] * 50, "another call: these claims have ended"
        client.config_set("maxmemory", 0)
        assert fsck(store, Q) == []
        store.close()


def test_jobs_go_to_another_queue(make_job) -> None:
    with running_redis() as url, redis.Redis.from_url(url) as client:
        store = Store.from_setting(url, options=StoreOptions())
        enqueue(store, make_job("first"), make_job("second"))
        store.enqueue("other", [make_job("resident")])
        claims = claim(store, 2)
        store.settle(Q, [Ended(claims[0], "retry", FAILED, queue="other")])  # the server knows the script
        client.config_set("maxmemory", "1mb")
        with pytest.raises(StoreFull):
            enqueue(store, make_job("more"))
        assert store.settle(Q, [Ended(claims[1], "retry", FAILED, queue="other")]) == [State.RETRY]
        assert end_calls.follow(Store.from_setting(url, options=StoreOptions()), Q) == 2
        assert [store.get("other", each.id).state for each in claims] == [State.RETRY] * 2  # type: ignore[union-attr]
        client.config_set("maxmemory", 0)
        assert [fsck(store, queue) for queue in (Q, "other")] == [[], []]
        store.close()


def test_a_bulk_operation_can_be_noted_and_its_progress(full_store: Store) -> None:
    full_store.update_document("bulk", {"a": {"verb": "delete"}, "b": 1})
    full_store.update_document("bulk", {"a": None, "b": 2})
    assert full_store.get_document("bulk") == {"b": 2}


@job(name="tests.full.nothing")
def nothing(given: object = None) -> object:
    """A step."""
    return given


def test_old_workflows_are_deleted_and_others_go_on_when_there_is_room() -> None:
    with running_redis() as url, redis.Redis.from_url(url) as client:
        store = Store.from_setting(url, options=StoreOptions(history_ttl=1))
        use_store(store)
        executor, settler = Executor(close_connections=False), Settler(store)
        old = chain(nothing.s()).enqueue(on_commit=False)
        settler.settle_now([executor.attempt(each, store) for each in claim(store, 1)])
        new = chain(nothing.s(), nothing.s()).enqueue(on_commit=False)
        (held,) = claim(store, 1)
        attempted = executor.attempt(held, store)
        client.hdel(store.keys.workflow(new.id), "started")  # its producer died before it noted this
        store.check_workflows_in([(new.id, -1000), (old.id, 0)])  # the check of the first is refused
        client.config_set("maxmemory", "100kb")
        settler.settle_now([attempted])
        assert store.unread([Q]) == [Q], "the step has ended, and the next cannot be stored"
        with pytest.raises(StoreFull):
            workflows(store, [Q])
        assert store.workflow_ids() == [new.id], "what frees memory was done"
        client.config_set("maxmemory", "0")
        workflows(store, [Q])
        settler.settle_now([executor.attempt(each, store) for each in claim(store, 1)])
        assert new.state == "succeeded"
        store.close()
    use_store(None)


def test_workflows_are_cancelled_and_batches_closed() -> None:
    with running_redis() as url, redis.Redis.from_url(url) as client:
        store = Store.from_setting(url, options=StoreOptions())
        use_store(store)
        flow = chain(nothing.s(), nothing.s(), nothing.s()).enqueue(on_commit=False)
        batch = Batch("full", on_complete=nothing.s())
        with batch:
            nothing.using(on_commit=False).enqueue()
            client.config_set("maxmemory", "100kb")
        flow.cancel()
        assert flow.state == "cancelled"
        assert {step.state for step in flow.steps} == {"cancelled"}
        client.config_set("maxmemory", "0")
        executor, settler = Executor(close_connections=False), Settler(store)
        settler.settle_now([executor.attempt(each, store) for each in claim(store, 1)])
        workflows(store, [Q])
        assert batch.handle.state == "succeeded", "it was closed"
        store.close()
    use_store(None)


def test_a_result_that_a_later_step_needs_is_kept() -> None:
    """A number that cannot be counted down for lack of memory is no damaged one."""
    with running_redis() as url, redis.Redis.from_url(url) as client:
        store = Store.from_setting(url, options=StoreOptions())
        use_store(store)
        executor, settler = Executor(close_connections=False), Settler(store)
        flow = Workflow()
        source = flow.add(nothing.s("of the source"), name="source")
        second = flow.add(nothing.s(source.result))
        flow.add(nothing.s(source.result), after=[second])
        handle = flow.enqueue(on_commit=False)
        settler.settle_now([executor.attempt(each, store) for each in claim(store, 1)])
        attempted = [executor.attempt(each, store) for each in claim(store, 1)]
        client.config_set("maxmemory", "100kb")
        settler.settle_now(attempted)
        with pytest.raises(StoreFull):
            workflows(store, [Q])
        client.config_set("maxmemory", "0")
        workflows(store, [Q])
        settler.settle_now([executor.attempt(each, store) for each in claim(store, 1)])
        assert handle.wait(5) == "of the source"
        store.close()
    use_store(None)
