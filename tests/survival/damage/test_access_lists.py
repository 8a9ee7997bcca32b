"""The Redis users of docs/howto/security.md under every verb there is, and under every command they must not have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import Batch, get_job, group
from django_jobs.core.values import PLAIN, Added, Attempt, Completed, Controls, Job, NewJob, State
from django_jobs.enqueueing.decorator import JobFunction
from django_jobs.exceptions import StoreFull
from django_jobs.serialization.record import decode, encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.transport import _in_doubt as in_doubt
from django_jobs.stores.values.options import StoreOptions
from django_jobs.workflows import engine, reading
from tests.docs.pages import ROOT
from tests.support.backends.redis_process import RedisServer
from tests.support.faults.walking import QUEUE, Walk
from tests.survival.conftest import Clock

USERS = ("worker", "producer", "viewer")


@pytest.fixture
def users(quiet_server: RedisServer) -> Iterator[None]:
    """The three users of the document, on a server that is otherwise open to the test."""
    lines, _ = quiet_server.program.rules_of_users(ROOT / "docs" / "howto" / "security.md")
    with quiet_server.client() as client:
        client.flushall()
        client.acl_log_reset()
        for line in lines:
            client.execute_command(*line.split())
        yield
        client.execute_command("ACL", "DELUSER", *USERS)


def store_of(server: RedisServer, user: str, clock: Clock) -> Store:
    url = f"redis://{user}:PASSWORD@127.0.0.1:{server.port}/0"
    return Store.from_setting(url, options=StoreOptions(clock=clock, history=20, dead=20, archive=True))


@pytest.mark.redis
@pytest.mark.usefixtures("users")
def test_a_worker_may_do_all_of_its_work(quiet_server: RedisServer, virtual: Clock) -> None:
    store = store_of(quiet_server, "worker", virtual)
    walk = Walk(store, virtual, seed=2)
    for _ in range(400):
        walk.step()
    for _ in range(2):
        store.wait_for_work([QUEUE], 0.01)
    store.describe()
    store.update_document("schedules", {"a": 1})
    assert store.get_document("schedules") == {"a": 1}
    store.close()
    with quiet_server.client() as client:
        assert client.acl_log() == []


@pytest.mark.redis
@pytest.mark.usefixtures("users")
def test_a_producer_may_do_all_of_its_work(quiet_server: RedisServer, virtual: Clock) -> None:
    """It adds jobs in each way and looks at its handles, whatever has become of the jobs."""
    producer, worker = (store_of(quiet_server, user, virtual) for user in ("producer", "worker"))
    use_store(producer)
    task = JobFunction(step_of_a_producer, name="work", max_concurrency=1)
    handles = [
        task.enqueue(),
        task.enqueue_in(60),
        task.enqueue_unique(),
        task.enqueue_unique_by_key("k"),
        task.using(job_id="mine", priority=5, expires_at=datetime.now(UTC) + timedelta(days=9)).enqueue(),
        *task.enqueue_many([()] * 3),
    ]
    for _ in range(3):
        for handle in handles:
            assert handle is not None
            handle.refresh()
            assert get_job(handle.id).state == handle.state
        for claim in worker.claim("default", "w", 1, lease=30_000).claims:
            worker.retry(claim, Attempt(1, "failed", 0), 0)
    use_store(None)
    producer.close()
    worker.close()


@pytest.mark.redis
@pytest.mark.usefixtures("users")
def test_a_viewer_sees_exactly_what_a_worker_sees(quiet_server: RedisServer, virtual: Clock) -> None:
    worker = store_of(quiet_server, "worker", virtual)
    walk = Walk(worker, virtual, seed=4)
    for _ in range(200):
        walk.step()
    store = store_of(quiet_server, "viewer", virtual)
    for state in State:
        assert store.page(QUEUE, state) == worker.page(QUEUE, state)
    assert store.stats([QUEUE]) == worker.stats([QUEUE])
    assert store.queues() == worker.queues()
    assert store.workers() == worker.workers()
    assert store.sums([QUEUE], 0) == worker.sums([QUEUE], 0)
    store.close()
    worker.close()


@pytest.mark.redis
@pytest.mark.usefixtures("users")
def test_a_producer_may_enqueue_workflows_and_close_batches_and_a_viewer_sees_them(
    quiet_server: RedisServer, virtual: Clock
) -> None:
    producer, worker, viewer = (store_of(quiet_server, user, virtual) for user in ("producer", "worker", "viewer"))
    task = JobFunction(step_of_a_producer, name="work")
    use_store(producer)
    flow = group(task.s(), task.s()).then(task.s()).enqueue()
    with Batch(on_success=task.s()) as batch:
        task.enqueue()
    with Batch(on_complete=task.s()) as empty:
        pass
    use_store(None)
    ran = 0
    while claims := worker.claim("default", "w", 10, lease=30_000).claims:
        done = [Completed(claim, controls=decode(claim.id, "default", claim.record).controls) for claim in claims]
        assert worker.complete("default", done) == []
        engine.advance(worker, "default")
        ran += len(claims)
    assert ran == 6
    for handle in (flow, batch, empty):
        info = reading.read(viewer, handle.id)
        assert info is not None
        assert info.state == "succeeded"
    assert len(reading.page(viewer)) == 3
    assert len(reading.steps(viewer, flow.id)) == 3
    for store in (producer, worker, viewer):
        store.close()


class InDoubt:
    """Wraps a transport: each request says that an earlier one of its sender may still be under way."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, script: Any, keys: Any, args: Any) -> Any:
        return self.inner.run(*in_doubt((script, keys, args)))


@pytest.mark.redis
@pytest.mark.usefixtures("users")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("digest", ["", "c" * 20])
@pytest.mark.parametrize(
    "controls",
    [PLAIN, Controls(unique="a" * 64), Controls(priority=5, at_most_once=True), Controls(workflow="w")],
    ids=["plain", "unique", "at most once", "step"],
)
def test_a_producer_that_asks_again_after_a_lost_answer_is_told_what_there_is(
    quiet_server: RedisServer, virtual: Clock, controls: Controls, digest: str, number: int
) -> None:
    def new(id: str, args: bytes = b"[[],{}]") -> NewJob:
        return NewJob(id, encode(Job(id, QUEUE, "shop.work", args, 0, controls=controls)), controls, digest=digest)

    store = store_of(quiet_server, "producer", virtual)
    store.transport = InDoubt(store.transport)  # type: ignore[assignment]
    ids = ["a", "b"][:number]
    first = store.enqueue(QUEUE, [new(id) for id in ids])
    assert store.enqueue(QUEUE, [new(ids[0])]) == [Added.ADDED]
    assert store.enqueue(QUEUE, [new(id, b"[[1],{}]") for id in ids]) == [
        Added.EXISTS if word is Added.ADDED else word for word in first
    ]
    assert store.enqueue(QUEUE, [new("c")]) == [Added.DUPLICATE if controls.unique else Added.ADDED]
    store.close()


@pytest.mark.redis
@pytest.mark.usefixtures("users")
def test_in_a_full_redis_a_producer_that_asks_again_is_told_so_and_a_worker_is_told_what_there_is(
    quiet_server: RedisServer, virtual: Clock
) -> None:
    controls = Controls(unique="a" * 64)
    held, new = (NewJob(id, encode(Job(id, QUEUE, "n", b"[[],{}]", 0, controls=controls)), controls) for id in "ab")
    producer, worker = (store_of(quiet_server, user, virtual) for user in ("producer", "worker"))
    producer.enqueue(QUEUE, [held])
    worker.enqueue(QUEUE, [held])  # each names the queue once, which needs room
    for store in (producer, worker):
        store.transport = InDoubt(store.transport)  # type: ignore[assignment]
    with quiet_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreFull):
                producer.enqueue(QUEUE, [new])
            assert worker.enqueue(QUEUE, [new]) == [Added.DUPLICATE]
            assert worker.enqueue(QUEUE, [held]) == [Added.ADDED]
        finally:
            client.config_set("maxmemory", 0)
    producer.close()
    worker.close()


def step_of_a_producer() -> None:
    """Runs nowhere: only its end is recorded."""
