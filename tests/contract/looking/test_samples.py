"""Samples of the totals: what charts of job types and of a week are made of, and what they do not know."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt, Done
from django_jobs.samples.chart import ALL, COARSE, FINE, KEPT, MOST_TYPES, NOTHING
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
        store.complete(queue, [Done(held) for held in claims[:succeeded]])
        for held in claims[succeeded:]:
            store.bury(held, FAILED)


def drawn(store, width, number, name=ALL, queue=Q):
    return store.samples([queue], width, number, [name])[1][queue][name]


def chart(store, width, number, name=ALL, queue=Q):
    """Start and end, in widths before the last end, and the numbers."""
    found = drawn(store, width, number, name, queue)
    last = found[-1].end
    return [((each.start - last) // width, (each.end - last) // width, each.counts) for each in found]


def kept(store):
    """Everything that is written for charts of the queue."""
    return [store.transport.client.hgetall(store.keys.of(Q)[key]) for key in ("hours", "bases")]


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
    assert drawn(store, COARSE, 1)[0].partial


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
    run(store, make_job, 1)
    before = kept(store)
    clock.advance(FINE - 1)
    store.sample([Q])
    assert kept(store) == before
    clock.advance(1)
    store.sample([Q])
    assert kept(store) != before


DAMAGE = ["x", "-1", "", "9" * 30, "nan", "7", "1 2", "1 2 3 4 5 6", "\0", b"\xff"]


@pytest.mark.parametrize("text", DAMAGE)
def test_a_damaged_time_of_the_last_sample_is_replaced(store, make_job, clock, text):
    run(store, make_job, 1)
    store.sample([Q])
    store.transport.client.hset(store.keys.of(Q)["bases"], "at", text)
    assert store.upkeep_due([Q])[Q].sample
    store.sample([Q])
    assert not store.upkeep_due([Q])[Q].sample
    clock.advance(FINE)
    run(store, make_job, 2)
    store.sample([Q])
    assert chart(store, FINE, 2) == [(-2, -1, (2, 0, 0)), (-1, 0, NOTHING)], "it goes on"


@pytest.mark.parametrize("text", DAMAGE)
def test_damaged_numbers_leave_a_chart_and_the_next_is_sound(store, make_job, clock, text):
    """Each field in turn, of both keys."""
    client, names = store.transport.client, store.keys.of(Q)
    store.sample([Q])
    fields = []
    for _ in range(2):
        run(store, make_job, 3)
        clock.advance(COARSE)
        store.sample([Q])
        fields = [(key, field) for key in ("hours", "bases") for field in client.hkeys(names[key])]
    for key, field in fields:
        client.hset(names[key], field, text)
        for width in (FINE, COARSE):
            for name in (ALL, "shop.a"):
                found = drawn(store, width, 12, name)
                assert found[-1].end == clock.now + width
                assert [each.start for each in found[1:]] == [each.end for each in found[:-1]]
        clock.advance(COARSE)
        store.sample([Q])
        run(store, make_job, 1)
        clock.advance(COARSE)
        store.sample([Q])
        assert chart(store, COARSE, 2) == [(-2, -1, (1, 0, 0)), (-1, 0, NOTHING)]


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
    assert chart(store, COARSE, 2) == [(-2, -1, None), (-1, 0, (2, 0, 0))], "charts begin anew"
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
    store.complete(Q, [Done(held) for held in store.claim(Q, "w", 1000, lease=LEASE).claims])
    clock.advance(COARSE)
    store.sample([Q])
    known = [name for name in names if chart(store, COARSE, 2, name)[0][2] is not None]
    assert known == names[:MOST_TYPES]
    assert all(chart(store, COARSE, 2, name) == [(-2, -1, (1, 0, 0)), (-1, 0, NOTHING)] for name in known)
    assert chart(store, COARSE, 2)[0] == (-2, -1, (MOST_TYPES + 5, 0, 0))


def test_a_type_without_jobs_for_eight_days_gives_way(store, make_job, clock):
    names = [f"shop.{number:03}" for number in range(MOST_TYPES)]
    store.sample([Q])
    enqueue(store, *[make_job(name=name) for name in names])
    store.complete(Q, [Done(held) for held in store.claim(Q, "w", 1000, lease=LEASE).claims])
    for _ in range(9 * 24 + 1):
        clock.advance(COARSE)
        store.sample([Q])
    run(store, make_job, 1, name="shop.new")
    clock.advance(COARSE)
    store.sample([Q])
    run(store, make_job, 2, name="shop.new")
    assert chart(store, COARSE, 2, "shop.new") == [(-2, -1, (1, 0, 0)), (-1, 0, (2, 0, 0))]
    assert [chart(store, COARSE, 1, name)[0][2] for name in names].count(None) == 1
    for name in ("shop.a", "shop.b"):
        run(store, make_job, 1, name=name)
    clock.advance(COARSE)
    store.sample([Q])
    run(store, make_job, 2, name="shop.a")
    assert chart(store, COARSE, 2, "shop.a") == [(-2, -1, None), (-1, 0, (2, 0, 0))], "it may have had jobs before"


def test_samples_are_kept_for_eight_days(store, make_job, clock):
    store.sample([Q])
    for _ in range(10 * 24):
        run(store, make_job, 1)
        clock.advance(COARSE)
        store.sample([Q])
    found = chart(store, COARSE, 10 * 24)
    assert [counts for *_, counts in found if counts is not None] == [(1, 0, 0)] * 192 + [NOTHING]
    assert len([field for field in kept(store)[0] if field.endswith(b":shop.a")]) <= 192 + 15


def test_for_an_idle_queue_nothing_is_written(store, make_job, clock):
    run(store, make_job, 1)
    for _ in range(50):
        store.sample([Q])
        clock.advance(COARSE)
    assert kept(store)[0] == {}
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
    assert store.samples(["nothing"], COARSE, 3) == (clock.now, {"nothing": {}})


@pytest.mark.redis
def test_a_sample_that_arrives_late_or_twice_changes_nothing(redis_store, make_job, clock, monkeypatch):
    sent, once = [], redis_store.transport.run
    redis_store.sample([Q])
    clock.advance(FINE)
    monkeypatch.setattr(redis_store.transport, "run", lambda *call: sent.append(call) or once(*call))
    redis_store.sample([Q])
    run(redis_store, make_job, 3)
    clock.advance(FINE)
    redis_store.sample([Q])
    before = kept(redis_store)
    assert chart(redis_store, FINE, 2) == [(-2, -1, (3, 0, 0)), (-1, 0, NOTHING)]
    run(redis_store, make_job, 1)
    for call in [call for call in sent if call[0].name == "sample"]:
        once(*call)
    assert kept(redis_store) == before


@pytest.mark.redis
def test_samples_disappear_eight_days_after_the_last(redis_store, make_job, clock):
    redis_store.sample([Q])
    run(redis_store, make_job, 1)
    clock.advance(COARSE)
    redis_store.sample([Q])
    for key in ("hours", "bases"):
        left = redis_store.transport.command("PTTL", redis_store.keys.of(Q)[key])
        assert 191 * COARSE < left <= KEPT[COARSE]


def test_the_claim_of_a_job_changes_no_sample(store, make_job):
    enqueue(store, make_job())
    store.sample([Q])
    claim(store)
    assert chart(store, FINE, 1) == [(-1, 0, NOTHING)]
