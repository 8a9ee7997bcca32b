"""Who waits gets an answer: an end stays a minute, however many other jobs end meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from django_jobs.core.values import State
from django_jobs.enqueueing.handle import JobHandle, get_job
from django_jobs.exceptions import JobNotFound
from django_jobs.stores import use_store
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


def test_a_result_stays_until_the_last_moment_of_the_minute(make_store, make_job, clock):
    store = make_store(history=1)
    complete(store, *start(store, make_job("a")), result=b"42")
    clock.advance(MINUTE - 1)
    finish(store, State.SUCCEEDED, make_job("other"))
    finish(store, State.SUCCEEDED, make_job("another"))
    store.prune(Q)
    assert store.get(Q, "a").result == b"42"


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


@pytest.mark.parametrize("mixed", [False, True], ids=["none returned anything", "some returned something"])
def test_who_asks_within_a_minute_is_told_that_it_returned_none(make_store, make_job, clock, mixed):
    store = make_store(history=2)
    use_store(store)
    if mixed:
        complete(store, *start(store, make_job("with")), result=b"1")
        clock.advance(10)
    for id in ("a", "b"):
        finish(store, State.SUCCEEDED, make_job(id))
    others(store, make_job, clock, 70)
    for id in ("a", "b"):
        assert store.get(Q, id) is None, "HISTORY keeps two"
        assert JobHandle(id, "tests.job", Q).wait(0) is None
        assert JobHandle(id, "tests.job", Q).refresh().state == State.SUCCEEDED
        assert asyncio.run(JobHandle(id, "tests.job", Q).await_result(1)) is None
        assert get_job(id).wait(0) is get_job(id, Q).wait(0) is None


def test_of_nothing_else_is_that_said(make_store, make_job, clock):
    store = make_store(history=2, dead=0)
    use_store(store)
    complete(store, *start(store, make_job("with")), result=b"1")
    finish(store, State.DEAD, make_job("dead"))
    finish(store, State.SUCCEEDED, make_job("deleted"))
    store.delete(Q, ["deleted"])
    finish(store, State.SUCCEEDED, make_job("old"))
    clock.advance(MINUTE)
    others(store, make_job, clock, 3)
    store.prune(Q)
    for id in ("with", "dead", "deleted", "old", "never"):
        assert store.get(Q, id) is None
        assert not store.has_returned_none(Q, id)
        with pytest.raises(JobNotFound):
            JobHandle(id, "tests.job", Q).wait(0)


@pytest.mark.redis
def test_what_a_queue_on_redis_knows_of_them_goes_by_itself(make_redis_store, make_job):
    store = make_redis_store(clock=None, history=0)
    raw, names = store.transport.client, store.keys.of(Q)
    complete(store, *start(store, make_job("a")))
    assert 60_000 < raw.pttl(names["returned"]) <= 120_000
    raw.pexpire(names["returned"], 59_000)  # a minute later
    complete(store, *start(store, make_job("b")))
    assert (raw.get(names["returned_before"]), raw.get(names["returned"])) == (b"\na\n", b"\nb\n")
    assert 0 < raw.pttl(names["returned_before"]) <= 59_000
    raw.append(names["returned"], "x" * 50_000 * 33)
    complete(store, *start(store, make_job("c")))
    assert (raw.exists(names["returned"]), raw.getrange(names["returned_before"], -3, -1)) == (0, b"\nc\n")
    assert raw.pttl(names["returned_before"]) > 60_000
    raw.rpush(names["returned"], "of another type")
    assert complete(store, *start(store, make_job("d"))) == []


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
