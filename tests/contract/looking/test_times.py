"""How long attempts waited and ran: counted by the calls that end them, for each job type."""

from __future__ import annotations

import logging

import pytest

from django_jobs import job
from django_jobs.core.times import BOUNDS, MOST_NAMES, OTHER
from django_jobs.core.values import Attempt, Completed
from django_jobs.execution.executor import Executor
from tests.contract.acts import LEASE, Q, claim, enqueue

DAY = 86_400_000


@job(name="tests.times.fails", max_attempts=1)
def fails(error: bool) -> None:
    """Succeed, or fail."""
    if error:
        raise ValueError


def ended(store, make_job, name, wait_ms, run_ms):
    enqueue(store, make_job(name=name))
    (held,) = claim(store)
    return Completed(held, run_ms=run_ms, wait_ms=wait_ms)


def test_successes_are_counted_in_their_buckets(store, make_job):
    times = [(0, 10), (10, 11), (11, 0), (BOUNDS[-1] + 1, BOUNDS[-1])]
    for wait_ms, run_ms in times:
        store.complete(Q, [ended(store, make_job, "shop.a", wait_ms, run_ms)])
    store.complete(Q, [ended(store, make_job, "shop.b", 70, 700)])
    found = store.times([Q, "nothing"])
    assert found["nothing"] == {}
    assert set(found[Q]) == {"shop.a", "shop.b"}
    waiting, running = found[Q]["shop.a"]
    assert waiting.up_to == (2, *[3] * (len(BOUNDS) - 1), 4)
    assert running.up_to == (2, *[3] * (len(BOUNDS) - 2), 4, 4)
    assert (waiting.sum, running.sum) == (21 + BOUNDS[-1] + 1, 21 + BOUNDS[-1])
    assert found[Q]["shop.b"].running.up_to == (*[0] * 5, *[1] * (len(BOUNDS) - 4))


def test_a_batch_counts_each_of_its_names(store, make_job):
    names = [f"shop.{number % 3}" for number in range(30)]
    enqueue(store, *[make_job(name=name) for name in names])
    claims = store.claim(Q, "w", 100, lease=LEASE).claims
    store.complete(Q, [Completed(held, run_ms=5, wait_ms=60) for held in claims])
    found = store.times([Q])[Q]
    assert {name: (each.waiting.up_to[-1], each.running.sum) for name, each in found.items()} == {
        f"shop.{number}": (10, 50) for number in range(3)
    }


def test_failures_are_counted_if_their_time_is_known(store, make_job, clock):
    enqueue(store, make_job(name="shop.a"))
    clock.advance(70)
    (held,) = claim(store)
    store.retry(held, Attempt(1, "failed", 0, run_ms=7), 0)
    (held,) = claim(store)
    store.bury(held, Attempt(2, "failed", 0, run_ms=20_000))
    enqueue(store, make_job(name="shop.a"))
    (held,) = claim(store)
    store.bury(held, Attempt(1, "corrupt", 0, run_ms=-1))
    waiting, running = store.times([Q])[Q]["shop.a"]
    assert (running.up_to[0], running.up_to[-1], running.sum) == (1, 2, 20_007)
    assert (waiting.up_to[-1], waiting.sum) == (2, 70)


@pytest.mark.parametrize("error", ["true", "false"])
def test_a_scheduled_job_has_waited_since_it_was_due_wherever_its_wait_is_told(store, make_job, clock, caplog, error):
    enqueue(store, make_job(name="tests.times.fails", run_at=clock.now + DAY, args=f"[[{error}],{{}}]".encode()))
    clock.advance(DAY + 70)
    assert store.stats([Q])[0].latency == 70
    with caplog.at_level(logging.INFO, "django_jobs.worker"):
        Executor(close_connections=False).run(*claim(store), store)
    assert store.times([Q])[Q]["tests.times.fails"].waiting.sum == 70
    assert "waited 70 ms" in caplog.text
    (minute,) = store.sums([Q], clock.now).values()
    assert minute.get("wait_ms", 0) == (70 if error == "false" else 0), "the chart is of successes"


def test_a_call_that_settles_nothing_counts_nothing(store, make_job):
    done = ended(store, make_job, "shop.a", 5, 5)
    store.complete(Q, [done])
    before = store.times([Q])
    assert store.complete(Q, [done]) in ([], [done.claim.id])
    store.retry(done.claim, Attempt(1, "failed", 0, run_ms=7), 0)
    assert store.times([Q]) == before


def test_after_a_hundred_names_all_others_share_one(store, make_job):
    enqueue(store, *[make_job(name=f"shop.{number}") for number in range(MOST_NAMES + 5)])
    for held in store.claim(Q, "w", 1000, lease=LEASE).claims:
        store.complete(Q, [Completed(held, run_ms=5, wait_ms=60)])
    found = store.times([Q])[Q]
    assert len(found) == MOST_NAMES + 1
    assert found[OTHER].running.up_to[-1] == 5
    assert sum(each.waiting.up_to[-1] for each in found.values()) == MOST_NAMES + 5


def test_totals_of_all_jobs_are_the_sums_of_the_named_ones(store, make_job):
    enqueue(store, make_job(name="shop.a"), make_job(name="shop.b"), make_job(name="shop.b", unique="digest"))
    (held, *_) = store.claim(Q, "w", 3, lease=LEASE).claims
    store.complete(Q, [Completed(held)])
    totals = store.stats([Q])[0].totals
    assert (totals["enqueued"], totals["succeeded"]) == (3, 1)
    assert totals["enqueued:shop.a"] + totals["enqueued:shop.b"] == 3
