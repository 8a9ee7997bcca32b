"""Samples of the totals: what charts of job types and of a week are made of, and what they do not know."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, Completed
from django_jobs.samples.chart import stretches
from django_jobs.samples.log import ALL, COARSE, FINE, MOST_TYPES, NOTHING
from tests.contract.acts import LEASE, Q, claim, enqueue

FAILED = Attempt(1, "failed", 0, error_type="E", error="no", run_ms=1)


@pytest.fixture(autouse=True)
def _on_the_hour(clock):
    clock.now -= clock.now % COARSE


def run(store, make_job, succeeded=0, dead=0, name="shop.a", queue=Q):
    """Jobs of one type that succeed, and jobs that die at their first failure."""
    if succeeded + dead:
        store.enqueue(queue, [make_job(name=name, queue=queue) for _ in range(succeeded + dead)])
        claims = store.claim(queue, "w", 1000, lease=LEASE).claims
        store.complete(queue, [Completed(held) for held in claims[:succeeded]])
        for held in claims[succeeded:]:
            store.bury(held, FAILED)


def chart(store, width, number, name=ALL, queue=Q):
    """Start and end, in widths before the last end, and the numbers."""
    (sampled,) = store.samples([queue], width, types=name != ALL).values()
    found = stretches(sampled, name, width, number, sampled.now)
    last = found[-1].end
    return [((each.start - last) // width, (each.end - last) // width, each.counts) for each in found]


def test_a_chart_has_what_happened_between_two_samples(store, make_job, clock):
    store.sample([Q])
    for succeeded, dead in ((3, 1), (0, 0), (2, 0)):
        run(store, make_job, succeeded, dead)
        clock.advance(FINE)
        store.sample([Q])
    run(store, make_job, 1)
    expected = [(-4, -3, (3, 1, 1)), (-3, -2, NOTHING), (-2, -1, (2, 0, 0)), (-1, 0, (1, 0, 0))]
    assert chart(store, FINE, 4) == expected
    assert chart(store, FINE, 4, "shop.a") == expected
    assert chart(store, FINE, 4, "shop.b") == [(n, n + 1, NOTHING) for n in range(-4, 0)]
    assert chart(store, FINE, 2) == expected[2:]


def test_the_last_bar_is_as_of_now(store, make_job):
    store.sample([Q])
    run(store, make_job, 2)
    assert chart(store, COARSE, 1) == [(-1, 0, (2, 0, 0))]
    run(store, make_job, 1)
    assert chart(store, COARSE, 1) == [(-1, 0, (3, 0, 0))]


def test_what_happened_before_the_first_sample_is_not_known(store, make_job, clock):
    run(store, make_job, 5)
    assert [counts for *_, counts in chart(store, COARSE, 3)] == [None] * 3
    clock.advance(COARSE // 2)
    store.sample([Q])
    run(store, make_job, 1)
    assert chart(store, COARSE, 3) == [(-3, -2, None), (-2, -1, None), (-1, 0, (1, 0, 0))]
    (sampled,) = store.samples([Q], COARSE).values()
    assert stretches(sampled, ALL, COARSE, 1, sampled.now)[0].partial


def test_hours_without_a_worker_have_one_sum(store, make_job, clock):
    store.sample([Q])
    run(store, make_job, 1)
    clock.advance(COARSE)
    store.sample([Q])
    clock.advance(5 * COARSE)
    run(store, make_job, 7)
    store.sample([Q])
    clock.advance(COARSE)
    assert chart(store, COARSE, 8) == [(-8, -7, (1, 0, 0)), (-7, -2, (7, 0, 0)), (-2, -1, NOTHING), (-1, 0, NOTHING)]
    assert chart(store, COARSE, 3) == [(-7, -2, (7, 0, 0)), (-2, -1, NOTHING), (-1, 0, NOTHING)]


def test_hours_without_a_worker_in_which_nothing_happened_are_known(store, make_job, clock):
    run(store, make_job, 1)
    store.sample([Q])
    clock.advance(5 * COARSE)
    assert chart(store, COARSE, 3) == [(n, n + 1, NOTHING) for n in (-3, -2, -1)]


def test_a_sample_in_the_middle_of_an_hour_divides_no_sum(store, make_job, clock):
    """The worker began in the middle: nobody knows in which hour the jobs before ran."""
    store.sample([Q])
    clock.advance(COARSE + COARSE // 2)
    run(store, make_job, 4)
    store.sample([Q])
    run(store, make_job, 2)
    clock.advance(COARSE // 2)
    store.sample([Q])
    assert chart(store, COARSE, 3) == [(-3, -1, (6, 0, 0)), (-1, 0, NOTHING)]


def test_a_sample_is_taken_once_in_five_minutes(store, make_job, clock):
    store.sample([Q])
    before = store.samples([Q], FINE)
    clock.advance(FINE - 1)
    store.sample([Q])
    assert store.samples([Q], FINE)[Q].log == before[Q].log
    clock.advance(1)
    store.sample([Q])
    assert store.samples([Q], FINE)[Q].log != before[Q].log


@pytest.mark.parametrize("text", ["x", "-1", "", "9" * 30])
def test_a_damaged_time_of_the_last_sample_is_replaced(store, make_job, clock, text):
    run(store, make_job, 1)
    store.sample([Q])
    store.transport.client.hset(store.keys.of(Q)["samples"], "taken", text)
    assert store.upkeep_due([Q])[Q].sample
    store.sample([Q])
    assert store.samples([Q], FINE)[Q].log is not None
    clock.advance(FINE)
    run(store, make_job, 2)
    before = store.samples([Q], FINE)[Q].log
    store.sample([Q])
    assert store.samples([Q], FINE)[Q].log != before, "it goes on"


def test_upkeep_says_which_queues_need_a_sample(store, make_job, clock):
    run(store, make_job, 1)
    assert store.upkeep_due([Q])[Q].sample
    store.sample([Q])
    clock.advance(FINE)
    assert store.upkeep_due([Q])[Q].sample
    store.sample([Q])
    assert not store.upkeep_due([Q])[Q].sample


def test_totals_that_became_smaller_are_not_negative(store, make_job, clock):
    run(store, make_job, 5)
    store.sample([Q])
    clock.advance(COARSE)
    lose_totals(store)
    assert chart(store, COARSE, 1) == [(-1, 0, None)]
    store.sample([Q])
    run(store, make_job, 2)
    assert chart(store, COARSE, 2) == [(-2, -1, None), (-1, 0, (2, 0, 0))]
    assert chart(store, COARSE, 2, "shop.a") == [(-2, -1, None), (-1, 0, (2, 0, 0))]


def lose_totals(store):
    store.transport.command("DEL", store.keys.of(Q)["totals"])


def test_a_clock_that_was_set_back_far_begins_again(store, make_job, clock):
    run(store, make_job, 5)
    store.sample([Q])
    clock.advance(-30 * COARSE)
    store.sample([Q])
    run(store, make_job, 1)
    assert chart(store, COARSE, 2) == [(-2, -1, None), (-1, 0, (1, 0, 0))]


def test_job_types_beyond_the_most_are_not_known_and_count_for_the_queue(store, make_job, clock):
    names = [f"shop.{number:03}" for number in range(MOST_TYPES + 5)]
    store.sample([Q])
    enqueue(store, *[make_job(name=name) for name in names])
    store.complete(Q, [Completed(held) for held in store.claim(Q, "w", 1000, lease=LEASE).claims])
    clock.advance(COARSE)
    store.sample([Q])
    known = [name for name in names if chart(store, COARSE, 2, name)[0][2] is not None]
    assert known == names[:MOST_TYPES]
    assert all(chart(store, COARSE, 2, name) == [(-2, -1, (1, 0, 0)), (-1, 0, NOTHING)] for name in known)
    assert chart(store, COARSE, 2)[0] == (-2, -1, (MOST_TYPES + 5, 0, 0))


def test_a_type_without_jobs_for_eight_days_gives_way(store, make_job, clock):
    store.sample([Q])
    enqueue(store, *[make_job(name=f"shop.{number:03}") for number in range(MOST_TYPES)])
    store.complete(Q, [Completed(held) for held in store.claim(Q, "w", 1000, lease=LEASE).claims])
    for _ in range(9 * 24 + 1):
        clock.advance(COARSE)
        store.sample([Q])
    run(store, make_job, 1, name="shop.new")
    clock.advance(COARSE)
    store.sample([Q])
    run(store, make_job, 2, name="shop.new")
    assert chart(store, COARSE, 2, "shop.new") == [(-2, -1, None), (-1, 0, (2, 0, 0))]


def test_samples_are_kept_for_eight_days(store, make_job, clock):
    store.sample([Q])
    for _ in range(10 * 24):
        run(store, make_job, 1)
        clock.advance(COARSE)
        store.sample([Q])
    found = chart(store, COARSE, 10 * 24)
    assert [counts for *_, counts in found if counts is not None] == [(1, 0, 0)] * 192 + [NOTHING]
    log = store.samples([Q], FINE)[Q].log
    assert len(log.spans) <= 15


def test_an_idle_queue_has_one_sample_for_all_its_hours(store, make_job, clock):
    run(store, make_job, 1)
    for _ in range(50):
        store.sample([Q])
        clock.advance(COARSE)
    assert len(store.samples([Q], COARSE)[Q].log.spans) == 1
    assert chart(store, COARSE, 3) == [(n, n + 1, NOTHING) for n in (-3, -2, -1)]


def test_each_queue_has_its_own(store, make_job, clock):
    store.sample([Q, "other"])
    run(store, make_job, 1)
    run(store, make_job, 2, queue="other")
    clock.advance(COARSE)
    store.sample([Q, "other"])
    assert chart(store, COARSE, 2)[0][2] == (1, 0, 0)
    assert chart(store, COARSE, 2, queue="other")[0][2] == (2, 0, 0)


def test_a_queue_without_samples_has_none(store, clock):
    sampled = store.samples(["nothing"], COARSE)["nothing"]
    assert sampled.log is None
    assert sampled.now == clock.now


@pytest.mark.redis
def test_of_two_workers_that_have_read_the_same_totals_one_has_an_effect(redis_store, make_job, clock, monkeypatch):
    sent, once = [], redis_store.transport.run
    redis_store.sample([Q])
    clock.advance(FINE)
    monkeypatch.setattr(redis_store.transport, "run", lambda *call: sent.append(call) or once(*call))
    redis_store.sample([Q])
    run(redis_store, make_job, 3)
    clock.advance(FINE)
    redis_store.sample([Q])
    before = redis_store.samples([Q], FINE)
    assert before[Q].log.bases[ALL].counts == (3, 0, 0)
    (first, *_) = [call for call in sent if call[0].name == "sample"]
    script, keys, (clock_at, _, _, *args) = first
    once(script, keys, (clock_at, "of another worker", "1", *args))
    assert redis_store.samples([Q], FINE) == before


@pytest.mark.redis
def test_samples_disappear_eight_days_after_the_last(redis_store, make_job):
    run(redis_store, make_job, 1)
    redis_store.sample([Q])
    left = redis_store.transport.command("PTTL", redis_store.keys.of(Q)["samples"])
    assert 191 * COARSE < left <= 192 * COARSE


def test_the_claim_of_a_job_changes_no_sample(store, make_job):
    enqueue(store, make_job())
    store.sample([Q])
    claim(store)
    assert chart(store, FINE, 1) == [(-1, 0, NOTHING)]


@pytest.mark.redis
@pytest.mark.parametrize("types", [False, True])
def test_a_user_who_may_run_no_scripts_reads_the_same(redis_store, make_job, clock, types):
    redis_store.sample([Q])
    run(redis_store, make_job, 3, 1)
    clock.advance(COARSE)
    redis_store.sample([Q])
    run(redis_store, make_job, 1, name="shop.b")
    before = redis_store.samples([Q, "nothing"], COARSE, types=types)
    redis_store._scripts_refused = True
    assert redis_store.samples([Q, "nothing"], COARSE, types=types) == before
