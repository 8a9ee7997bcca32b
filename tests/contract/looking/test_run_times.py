"""How long attempts waited and ran in the last day and the last week."""

from __future__ import annotations

from typing import Any

from django_jobs.core.values import Attempt, Claim, Completed
from django_jobs.samples.times import Quantiles, RunTimes
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.contract.acts import Q, claim, enqueue

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def started(store: Store, make_job: Any) -> Claim:
    enqueue(store, make_job(name="shop.a"))
    (held,) = claim(store)
    return held


def succeed(store: Store, make_job: Any, ms: int) -> None:
    store.complete(Q, [Completed(started(store, make_job), name="shop.a", run_ms=ms, wait_ms=0)])


def go(store: Store, clock: Clock, ms: int) -> None:
    """Let time pass; maintenance takes its samples every five minutes."""
    end = clock.now + ms
    while clock.now < end:
        clock.advance(min(HOUR, end - clock.now))
        store.sample([Q])


def only(store: Store, period: str) -> RunTimes | None:
    found = store.run_times([Q], [period], store.times([Q]))[period]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_day_and_a_week_have_their_own_times(store: Store, clock: Clock, make_job: Any) -> None:
    store.sample([Q])
    for _ in range(10):
        succeed(store, make_job, 40)
    go(store, clock, 2 * DAY)
    for _ in range(19):
        succeed(store, make_job, 900)
    store.bury(started(store, make_job), Attempt(1, "failed", clock.now, run_ms=20_000))
    go(store, clock, 5 * MINUTE)
    day, week = only(store, "day"), only(store, "week")
    assert day is not None
    assert week is not None
    assert (day.attempts, day.running) == (20, Quantiles(1000, 1000, 30_000)), "a failed attempt counts"
    assert 0 <= clock.now - DAY - day.since <= 3 * HOUR
    assert (week.attempts, week.running) == (30, Quantiles(1000, 1000, 30_000))
    go(store, clock, DAY + 3 * HOUR)
    assert only(store, "day") is None
    later = only(store, "week")
    assert later is not None
    assert later.attempts == 30
    go(store, clock, 9 * DAY)
    assert only(store, "week") is None


def test_without_samples_all_since_the_beginning_is_told(store: Store, make_job: Any) -> None:
    succeed(store, make_job, 3 * HOUR)
    found = only(store, "day")
    assert found is not None
    assert (found.since, found.running) == (0, Quantiles(None, None, None)), "longer than the longest bound"


def test_what_is_kept_of_a_queue_is_bounded(store: Store, clock: Clock, make_job: Any) -> None:
    """However long it works: 17 texts, each as long as its job types need."""
    for _ in range(9):
        succeed(store, make_job, 40)
        go(store, clock, DAY)
    kept = [field for field in store.transport.command("HKEYS", store.keys.of(Q)["samples"]) if b"times" in field]
    assert len(kept) <= 17


def test_damaged_numbers_are_none(store: Store, clock: Clock, make_job: Any) -> None:
    go(store, clock, 2 * DAY)
    key = store.keys.of(Q)["samples"]
    for field in store.transport.command("HKEYS", key):
        store.transport.command("HSET", key, field, b"\\xff nonsense")
    succeed(store, make_job, 40)
    found = only(store, "day")
    assert found is not None
    assert found.attempts == 1


def test_the_oldest_job_of_a_paused_queue_has_an_age(store: Store, clock: Clock, make_job: Any) -> None:
    enqueue(store, make_job())
    store.pause(Q)
    clock.advance(MINUTE)
    (stats,) = store.stats([Q])
    assert (stats.latency, stats.age) == (0, MINUTE)
