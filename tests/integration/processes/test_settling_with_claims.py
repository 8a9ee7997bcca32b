"""A process that runs one job at a time ends it in the round trip of its next claim, and begins no other before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs import job
from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.exceptions import StoreFull, StoreUnavailable
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.worker.child.process import Child
from django_jobs.worker.child.thread import Runner
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import pair
from django_jobs.worker.shared_memory import SharedMemory
from tests.support.waiting import wait_until

ran: list[int] = []


@job(delivery="at_most_once")
def pay(number: int) -> None:
    ran.append(number)
    if number < 0:
        raise ValueError("no such account")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def make_runner() -> Iterator[Callable[..., Runner]]:
    """Make the thread of an alone child; each `_turn` claims once and runs what it got."""
    ends: list[Any] = []

    def make(store: Any, *queues: str) -> Runner:
        use_store(store)
        here, there = pair()
        ends.extend([here, there])
        names = queues or ("default",)
        config = WorkerConfig(queues=tuple(QueueSettings(name) for name in names))
        child = Child(store, config, "w:1", Lane.ALONE, SharedMemory(list(names), 1), here)
        child.fetcher.before_wait = None
        return child.runners[0]

    yield make
    for end in ends:
        end.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The round trips for claims and ends."""
    made: list[str] = []
    run, together = Transport._run, Transport._together

    def counting(self: Transport, script: Any, *rest: Any) -> Any:
        if script.name in ("claim", "complete", "settle"):
            made.append(script.name)
        return run(self, script, *rest)

    def counting_together(self: Transport, calls: Any) -> Any:
        made.append(" and ".join(script.name for script, *_ in calls))
        return together(self, calls)

    monkeypatch.setattr(Transport, "_run", counting)
    monkeypatch.setattr(Transport, "_together", counting_together)
    return made


def turn_until(runner: Runner, done: Callable[[], bool]) -> None:
    wait_until(lambda: runner._turn() or done(), "all jobs are settled")


@pytest.mark.redis
def test_each_job_costs_one_round_trip(
    redis_store: Store, make_runner: Callable[..., Runner], calls: list[str]
) -> None:
    runner = make_runner(redis_store)
    pay.enqueue_many([(n,) for n in range(5)])
    for name in ("claim", "complete"):  # the server may not know them yet
        redis_store.transport.client.script_load(scripts.load(name).source)
    runner._turn()
    calls.clear()
    for _ in range(4):
        runner._turn()
    assert ran == [0, 1, 2, 3, 4]
    assert calls == ["complete and claim"] * 4 + ["complete"], "nothing is left: the last end waits for no claim"
    assert not runner.busy
    assert redis_store.stats(["default"])[0].counts["succeeded"] == 5


def test_all_run_once_and_are_settled(store: Store, make_runner: Callable[..., Runner], settings: Any) -> None:
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"default": {}, "other": {}}}
    runner = make_runner(store, "default", "other")
    pay.enqueue_many([(n,) for n in range(3)])
    pay.using(queue="other").enqueue_many([(n,) for n in range(10, 13)])
    pay.enqueue(-1)
    turn_until(runner, lambda: len(ran) == 7 and not runner.busy)
    assert sorted(ran) == [-1, 0, 1, 2, 10, 11, 12]
    default, other = store.stats(["default", "other"])
    assert (default.counts["succeeded"], default.counts["dead"], default.counts["running"]) == (3, 1, 0)
    assert (other.counts["succeeded"], other.counts["running"]) == (3, 0)


class Refusing:
    """A store that does not do what claims are to end, and refuses to end it otherwise so many times."""

    def __init__(self, store: Store, refusals: int) -> None:
        self.store, self.refusals = store, refusals
        self.claimed: list[str] = []

    def claim(self, *args: Any, completion: Any = None, **options: Any) -> Any:
        claimed = self.store.claim(*args, **options)
        self.claimed += [claim.id for claim in claimed.claims]
        return claimed

    def complete(self, *args: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise StoreFull("no memory")
        return self.store.complete(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_no_job_begins_before_the_end_of_the_last_one_is_recorded(
    redis_store: Store, make_runner: Callable[..., Runner]
) -> None:
    refusing: Any = Refusing(redis_store, refusals=3)
    runner = make_runner(refusing)
    pay.enqueue(1)
    pay.enqueue(2)
    runner._turn()
    runner._turn()
    assert len(refusing.claimed) == 2, "the second one was claimed,"
    assert ran == [1], "and is handed back"
    assert redis_store.stats(["default"])[0].counts["queued"] == 1
    assert [each.claim.id for each in runner.child.shared.last_batch().returned] == [refusing.claimed[0]], (
        "a parent that finds the child dead can still record the end"
    )
    turn_until(runner, lambda: len(ran) == 2 and not runner.busy)
    assert ran == [1, 2]
    assert redis_store.stats(["default"])[0].counts["succeeded"] == 2


def test_a_claim_that_fails_leaves_no_end_unrecorded(redis_store: Store, make_runner: Callable[..., Runner]) -> None:
    class Away(Refusing):
        def claim(self, *args: Any, completion: Any = None, **options: Any) -> Any:
            if completion is not None:
                raise StoreUnavailable("gone")
            return super().claim(*args, **options)

    runner = make_runner(Away(redis_store, refusals=0))
    pay.enqueue(1)
    pay.enqueue(2)
    runner._turn()
    assert runner.busy
    runner._turn()
    assert not runner.busy
    assert redis_store.stats(["default"])[0].counts["succeeded"] == 1


def test_an_end_that_came_too_late_is_told_of(
    redis_store: Store, make_runner: Callable[..., Runner], caplog: pytest.LogCaptureFixture
) -> None:
    runner = make_runner(redis_store)
    pay.enqueue(1)
    pay.enqueue(2)
    runner._turn()
    redis_store.release_worker("default", "w:1")
    with caplog.at_level(logging.WARNING, "django_jobs"):
        runner._turn()
    assert "ended after its claim was lost" in caplog.text


def test_a_process_that_is_told_to_stop_settles_first(redis_store: Store, make_runner: Callable[..., Runner]) -> None:
    runner = make_runner(redis_store)
    pay.enqueue(1)
    pay.enqueue(2)
    runner._turn()
    runner.child.gate.retire()
    runner._run()
    assert ran == [1]
    assert not runner.busy
    counts = redis_store.stats(["default"])[0].counts
    assert (counts["succeeded"], counts["queued"]) == (1, 1)
