"""Lists of the jobs of a stretch of time: exact at both ends, in both directions, of queues and of groups of errors."""

from __future__ import annotations

import random

import pytest

from django_jobs.core.values import State
from django_jobs.stores.values.lists import TIMED, Bars, Span
from tests.contract.acts import LEASE, done
from tests.contract.looking.test_lists import QUEUES, all_of, failed


@pytest.fixture
def put(store, make_job, clock):
    """Bring a job into this state now; a waiting one is due in a minute."""

    def put(state, queue, id, *, error="no", **job):
        controls = {"expires_at": clock.now + 1} if state is State.EXPIRED else {}
        due = clock.now + 60_000
        store.enqueue(queue, [make_job(id, run_at=due if state is State.SCHEDULED else 0, **controls, **job)])
        if state is State.CANCELLED:
            store.cancel(queue, [id])
        if state in (State.DEAD, State.RETRY, State.SUCCEEDED):
            (claimed,) = store.claim(queue, "w", 1, lease=LEASE).claims
            if state is State.DEAD:
                store.bury(claimed, failed(error))
            elif state is State.RETRY:
                store.retry(claimed, failed(error), 60_000)
            else:
                store.complete(queue, [done(claimed)])
        if state is State.EXPIRED:
            clock.advance(2)
            store.claim(queue, "w", 10, lease=LEASE)

    return put


@pytest.mark.parametrize("state", sorted(TIMED))
def test_a_list_of_a_stretch_of_time_has_its_jobs_and_no_others(store, put, clock, state):
    rng = random.Random(5)
    for n in range(40):
        put(state, rng.choice(QUEUES), f"{n:02}")
        clock.advance(rng.choice([0, 0, 1, 4]))
    every = {each: store.get(*each).at for each in all_of(store, state)}
    assert len(every) == 40
    times = sorted(every.values())
    first, last = times[8], times[30]
    # On the time of a job, between two, one end open, all, none, and the wrong way round.
    for span in [
        Span(first, last), Span(first, last + 1), Span(first), Span(0, last), Span(), Span(first, first + 1),
        Span(times[-1] + 1), Span(0, times[0]), Span(last, first),
    ]:  # fmt: skip
        wanted = {each for each, at in every.items() if span.has(at)}
        for reverse in (False, True):
            found = all_of(store, state, limit=3, span=span, reverse=reverse)
            assert sorted(found) == sorted(wanted), (span, reverse)
            order = [every[each] for each in found]
            assert order == sorted(order, reverse=reverse)
        assert store.count_within(QUEUES, state, span) == len(wanted)
        assert store.count_within(["a"], state, span) == sum(queue == "a" for queue, _ in wanted)
        assert store.count_within([], state, span) == 0


@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_a_stretch_of_time_of_one_error_in_a_group_of_many_parts(store, put, clock, state):
    """300 jobs of one group are several parts of its index."""
    for n in range(300):
        put(state, "a", f"{n:03}-{'x' * 30}")
        clock.advance(n % 3)
    for n in range(10):
        put(state, "a" if n % 2 else "b", f"other-{n}", error="something else")
        clock.advance(1)
    groups = [each for each in store.failure_groups(QUEUES, state) if each.signature == "ValueError: no"]
    every = {each: store.get(*each).at for each in all_of(store, state, limit=50, groups=groups)}
    assert len(every) == 300
    times = sorted(every.values())
    for since, before in [(0, 0), (times[0], times[-1]), (times[70], times[71]), (times[95], times[260]),
                          (times[150], 0), (0, times[150]), (times[-1] + 1, 0), (0, times[0])]:  # fmt: skip
        span = Span(since, before)
        wanted = sorted(each for each, at in every.items() if span.has(at))
        assert store.count_within(QUEUES, state, span, groups) == len(wanted)
        for reverse in (False, True):
            assert sorted(all_of(store, state, limit=40, groups=groups, span=span, reverse=reverse)) == wanted
    assert store.count_within(QUEUES, state, Span(), []) == 0
    assert store.count_within(["b"], state, Span(), groups) == 0


@pytest.mark.parametrize("state", [State.DEAD, State.RETRY])
def test_the_jobs_of_each_error_are_counted_by_bar(store, put, clock, state):
    """Groups of many jobs and of few, in which many jobs have the same time; bars of all widths, at the times of jobs
    and between them, before, over and behind all of them."""
    rng = random.Random(7)
    for n in range(300):
        put(state, "a", f"{n:03}-{'x' * rng.choice([1, 150])}")
        clock.advance(0 if 100 < n < 200 else n % 3)
    for n in range(10):
        put(state, "a" if n % 2 else "b", f"other-{n}", error="something else")
        clock.advance(1)
    groups = store.failure_groups(QUEUES, state)
    times = {
        group: sorted(store.get(*each).at for each in all_of(store, state, limit=50, groups=[group]))
        for group in groups
    }
    assert sorted(len(each) for each in times.values() if each) == [5, 5, 300]
    first, last = min(map(min, filter(None, times.values()))), max(map(max, filter(None, times.values())))
    for begin, width, number in [
        (first, 1, last - first + 1), (first, 50, 3), (first - 40, 7, 30), (first + 30, 100, 2), (0, last + 1, 1),
        (first + 60, 3, 40), (first, 10_000_000, 2), (last + 1, 60_000, 5), (0, 60_000, 5), (first - 5, 6, 1),
        (first + 1, 150, 1), (first + 40, 120, 1), (first + 100, 9_999_999_999_999 - first - 99, 1),
    ]:  # fmt: skip
        wanted = [[0] * number for _ in groups]
        for group, bars in zip(groups, wanted, strict=True):
            for at in times[group]:
                if begin <= at < begin + width * number:
                    bars[(at - begin) // width] += 1
        assert store.count_bars(state, groups, Bars(begin, width, number)) == wanted, (begin - first, width, number)
    assert store.count_bars(state, [], Bars(first, 1, 1)) == []


def test_only_failed_jobs_have_groups_to_be_counted(store):
    with pytest.raises(ValueError, match="groups"):
        store.count_bars(State.QUEUED, [], Bars(0, 1, 1))


def test_the_list_goes_on_although_jobs_come_and_go(store, put, clock):
    began = clock.now
    for n in range(30):
        put(State.DEAD, QUEUES[n % 6], f"{n:02}")
        clock.advance(1)
    gone = []

    def between():
        victim = f"{(len(gone) * 7) % 30:02}"
        gone.append(victim)
        put(State.DEAD, "a", f"new-{len(gone)}")
        for queue in QUEUES:
            store.delete(queue, [victim])

    span = Span(began + 5, began + 25)
    for reverse in (True, False):
        found = [id for _, id in all_of(store, State.DEAD, limit=4, between=between, span=span, reverse=reverse)]
        assert len(found) == len(set(found))
        assert {f"{n:02}" for n in range(5, 25)} - set(gone) <= set(found) <= {f"{n:02}" for n in range(5, 25)}


def test_succeeded_jobs_with_a_result_that_is_kept_are_left_out(store, put):
    """On Redis their order is the time until which they are kept: a list by the time of the end would be wrong."""
    put(State.SUCCEEDED, "a", "plain")
    put(State.SUCCEEDED, "a", "kept", keep_result=60_000)
    assert sorted(all_of(store, State.SUCCEEDED)) == [("a", "kept"), ("a", "plain")]
    assert all_of(store, State.SUCCEEDED, span=Span(1)) == [("a", "plain")]
    assert store.count_within(["a"], State.SUCCEEDED, Span(1)) == 1


@pytest.mark.parametrize("state", sorted(set(State) - TIMED))
def test_a_state_without_an_order_of_time_is_refused(store, state):
    with pytest.raises(ValueError, match="no order of time"):
        store.listed(["a"], state, 5, span=Span(1))
    with pytest.raises(ValueError, match="no order of time"):
        store.count_within(["a"], state, Span(1))
