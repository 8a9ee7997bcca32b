"""What `last_arrival`, `claim(up_to=…)` and `waiting` promise: to run what waits now, and nothing that comes later."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Lane
from tests.contract.acts import FAILED, LEASE, Q, State, claim, claim_ids, enqueue, finish, start


def drained(store, mark: int, limit: int = 100) -> list[str]:
    return claim_ids(store, limit, up_to=mark)


def test_of_an_empty_queue_there_is_nothing_to_drain(store):
    mark = store.last_arrival(Q)
    assert (drained(store, mark), store.waiting(Q, mark)) == ([], 0)


@pytest.mark.accepts("O07")
def test_what_waits_is_taken_and_what_comes_later_is_not_whatever_its_priority(store, make_job):
    enqueue(store, make_job("low", priority=-100), make_job("a"), make_job("b"), make_job("high", priority=100))
    mark = store.last_arrival(Q)
    enqueue(store, make_job("later"), make_job("later high", priority=100), make_job("later low", priority=-100))
    assert store.waiting(Q, mark) == 4

    first = store.claim(Q, "w", 2, lease=LEASE, up_to=mark)
    assert ([each.id for each in first.claims], first.left) == (["high", "a"], 2)
    rest = store.claim(Q, "w", 100, lease=LEASE, up_to=mark)
    assert ([each.id for each in rest.claims], rest.left) == (["b", "low"], 0)
    assert (drained(store, mark), store.waiting(Q, mark)) == ([], 0)
    assert claim_ids(store, 100) == ["later high", "later", "later low"]


def test_both_lanes_have_their_part_in_it(store, make_job):
    enqueue(store, make_job("now", alone=True))
    mark = store.last_arrival(Q)
    enqueue(store, make_job("later", alone=True))
    assert store.waiting(Q, mark) == 1
    assert claim_ids(store, 9, lane=Lane.ALONE, up_to=mark) == ["now"]
    assert store.waiting(Q, mark) == 0


def test_what_is_due_counts_as_waiting_and_what_becomes_due_later_does_not(store, make_job, clock):
    due, later = clock.now + 1000, clock.now + 5000
    store.enqueue(Q, [make_job(f"due {n}", run_at=due) for n in range(120)] + [make_job("later", run_at=later)])
    clock.advance(1000)
    mark = store.last_arrival(Q)
    clock.advance(5000)
    assert len(drained(store, mark, 1000)) == 120
    assert store.waiting(Q, mark) == 0
    assert claim_ids(store) == ["later"]


def test_the_retry_of_a_job_that_fails_meanwhile_is_left(store, make_job, clock):
    enqueue(store, make_job("a"))
    mark = store.last_arrival(Q)
    (held,) = claim(store, up_to=mark)
    store.retry(held, FAILED, 10)
    clock.advance(10)
    assert drained(store, mark) == []
    assert claim_ids(store) == ["a"]


def test_what_is_handed_back_still_waits(store, make_job):
    enqueue(store, make_job("a"), make_job("b"))
    mark = store.last_arrival(Q)
    store.release(Q, claim(store, 2, up_to=mark))
    enqueue(store, make_job("later"))
    assert store.waiting(Q, mark) == 2
    assert drained(store, mark) == ["a", "b"]


def test_what_a_lost_worker_held_is_taken_too(store, make_job):
    start(store, make_job("a"), worker="lost")
    mark = store.last_arrival(Q)
    store.recover(Q, worker="lost")
    assert claim_ids(store, 9, lane=Lane.ALONE, up_to=mark) == ["a"]


def test_what_waits_for_a_limit_is_taken_when_there_is_room(store, make_job):
    enqueue(store, *[make_job(id, limit_key="k", limit=1) for id in ("a", "b")])
    mark = store.last_arrival(Q)
    enqueue(store, make_job("later", limit_key="k", limit=1))
    (held,) = claim(store, 9, up_to=mark)
    assert (held.id, store.waiting(Q, mark)) == ("a", 0)
    store.release(Q, [])
    store.bury(held, FAILED)
    assert store.waiting(Q, mark) == 1
    assert drained(store, mark) == ["b"]


def test_a_paused_queue_has_nothing_to_wait_for(store, make_job):
    enqueue(store, make_job("a"))
    mark = store.last_arrival(Q)
    store.pause(Q)
    assert (store.waiting(Q, mark), drained(store, mark)) == (0, [])
    store.resume(Q)
    assert (store.waiting(Q, mark), drained(store, mark)) == (1, ["a"])


def test_jobs_of_a_paused_type_are_put_away_and_not_waited_for(store, make_job):
    enqueue(store, make_job("a", name="closed"))
    mark = store.last_arrival(Q)
    store.pause(Q, name="closed")
    assert (drained(store, mark), store.waiting(Q, mark)) == ([], 0)
    assert store.get(Q, "a").state is State.BLOCKED


def test_a_claim_that_is_sent_twice_takes_the_same_jobs_once(store, make_job):
    finish(store, State.SUCCEEDED, make_job("before"))
    enqueue(store, *[make_job(str(n)) for n in range(300)])
    mark = store.last_arrival(Q)
    enqueue(store, *[make_job(f"later {n}") for n in range(300)])
    taken = [id for _ in range(10) for id in drained(store, mark, 77)]
    assert taken == [str(n) for n in range(300)]
