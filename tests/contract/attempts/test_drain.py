"""What `last_arrival`, `claim(up_to=…)` and `waiting` promise: to run what waits now, and nothing that comes later."""

from __future__ import annotations

import pytest

from tests.contract.acts import FAILED, LEASE, Q, State, claim, claim_ids, enqueue, finish


def drained(store, mark: int, limit: int = 100) -> list[str]:
    return claim_ids(store, limit, up_to=mark)


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


def test_what_is_due_counts_as_waiting_and_what_becomes_due_later_does_not(store, make_job, clock):
    due, later = clock.now + 1000, clock.now + 5000
    store.enqueue(Q, [make_job(f"due {n}", run_at=due) for n in range(120)] + [make_job("later", run_at=later)])
    clock.advance(1000)
    mark = store.last_arrival(Q)
    clock.advance(5000)
    assert len(drained(store, mark, 1000)) == 120
    assert store.waiting(Q, mark) == 0
    assert claim_ids(store) == ["later"]


def test_what_is_handed_back_still_waits(store, make_job):
    enqueue(store, make_job("a"), make_job("b"))
    mark = store.last_arrival(Q)
    store.release(Q, claim(store, 2, up_to=mark))
    enqueue(store, make_job("later"))
    assert store.waiting(Q, mark) == 2
    assert drained(store, mark) == ["a", "b"]


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


def test_a_claim_that_is_sent_twice_takes_the_same_jobs_once(store, make_job):
    finish(store, State.SUCCEEDED, make_job("before"))
    enqueue(store, *[make_job(str(n)) for n in range(300)])
    mark = store.last_arrival(Q)
    enqueue(store, *[make_job(f"later {n}") for n in range(300)])
    taken = [id for _ in range(10) for id in drained(store, mark, 77)]
    assert taken == [str(n) for n in range(300)]
