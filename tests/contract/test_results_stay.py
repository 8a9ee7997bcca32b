"""Who waits gets an answer: an end stays a minute, however many other jobs end meanwhile."""

from __future__ import annotations

import pytest

from django_jobs.values import State
from tests.contract.acts import Q, complete, finish, ids_in, start, state_of

MINUTE = 60_000


def others(store, make_job, clock, n=50):
    for _ in range(n):
        clock.advance(1)
        finish(store, State.SUCCEEDED, make_job())


def test_a_job_with_a_result_stays_a_minute_whatever_the_count(make_store, make_job, clock):
    store = make_store(history=2)
    complete(store, *start(store, make_job("a")), result=b"42")
    others(store, make_job, clock)
    assert store.get(Q, "a").result == b"42"
    assert len(ids_in(store, State.SUCCEEDED)) == 3
    clock.advance(MINUTE)
    others(store, make_job, clock, 3)
    assert state_of(store, "a") is None
    assert len(ids_in(store, State.SUCCEEDED)) == 2


def test_many_with_a_result_stay_and_go_in_time(make_store, make_job, clock):
    store = make_store(history=2)
    for n in range(20):
        complete(store, *start(store, *[make_job(f"{n}-{i}") for i in range(10)]), result=b"1")
        others(store, make_job, clock, 2)
    assert len([id for id in ids_in(store, State.SUCCEEDED) if "-" in id and not id.startswith("job")]) == 200
    clock.advance(MINUTE + 1)
    for _ in range(3):
        others(store, make_job, clock, 1)
        store.prune(Q)
    assert len(ids_in(store, State.SUCCEEDED)) == 2


def test_one_that_returned_nothing_goes_at_once(make_store, make_job, clock):
    store = make_store(history=2)
    complete(store, *start(store, make_job("with")), result=b"1")
    finish(store, State.SUCCEEDED, make_job("without"))
    others(store, make_job, clock, 3)
    assert (state_of(store, "with"), state_of(store, "without")) == (State.SUCCEEDED, None)


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
def test_a_failure_stays_a_minute(make_store, make_job, clock, state):
    store = make_store(history=0, dead=0)
    finish(store, state, make_job("a"))
    clock.advance(MINUTE - 1)
    store.prune(Q)
    assert state_of(store, "a") is state
    clock.advance(2)
    store.prune(Q)
    assert state_of(store, "a") is None
