"""The look round of whoever is free: it sees in every queue what a claim would find, and when."""

from __future__ import annotations

from django_jobs.core.values import Lane
from django_jobs.stores.values.answers import Outlook
from tests.contract.acts import FAILED, Q, claim, claim_ids, complete, enqueue, start

NOTHING = Outlook(0, None)


def outlook(store, lane=Lane.SHARED):
    return store.outlook([Q], lane=lane)[Q]


def test_nothing_is_to_be_found_in_empty_queues(store):
    assert store.outlook([Q, "b"]) == {Q: NOTHING, "b": NOTHING}


def test_jobs_that_wait_are_seen_in_their_lane(store, make_job):
    enqueue(store, make_job(), make_job(), make_job(alone=True))
    store.enqueue("b", [make_job()])
    assert store.outlook([Q, "b", "c"]) == {Q: Outlook(2, None), "b": Outlook(1, None), "c": NOTHING}
    assert store.outlook([Q, "b"], lane=Lane.ALONE) == {Q: Outlook(1, None), "b": NOTHING}


def test_the_first_job_with_a_time_is_seen_in_both_lanes(store, make_job, clock):
    enqueue(store, make_job(run_at=clock.now + 5000), make_job(run_at=clock.now + 3000, alone=True))
    assert outlook(store) == outlook(store, Lane.ALONE) == Outlook(0, 3000)
    clock.advance(3500)
    assert outlook(store) == Outlook(0, 0)


def test_a_retry_is_seen(store, make_job):
    (claimed,) = start(store, make_job())
    store.retry(claimed, FAILED, 800)
    assert outlook(store) == Outlook(0, 800)


def test_a_paused_queue_has_nothing_before_it_opens(store, make_job, clock):
    enqueue(store, make_job(), make_job(run_at=clock.now + 100))
    store.pause(Q, until=clock.now + 2000)
    assert outlook(store) == Outlook(0, 2000)
    store.pause(Q)
    assert outlook(store) == NOTHING
    store.resume(Q)
    assert outlook(store) == Outlook(1, 100)


def test_jobs_of_a_type_whose_pause_has_ended_by_itself_are_seen(store, make_job, clock):
    """Nothing moves them when the time comes: they stay blocked until somebody looks into the queue."""
    store.pause(Q, name="first")
    store.pause(Q, name="second", until=clock.now + 2000)
    enqueue(store, make_job("a", name="first"), make_job("b", name="second"))
    assert claim(store, 2) == []
    assert outlook(store) == Outlook(0, 2000)
    clock.advance(2000)
    assert outlook(store) == Outlook(0, 0)
    assert store.wait_for_work([Q], 5) is not None
    assert claim_ids(store, 2) == ["b"]
    assert outlook(store) == NOTHING


def test_a_waiter_for_a_limit_is_seen_as_soon_as_there_is_room(store, make_job):
    enqueue(store, *[make_job(id, limit_key="k", limit=1) for id in "ab"])
    claims = claim(store, 2)
    assert outlook(store) == NOTHING
    complete(store, *claims)
    assert outlook(store) == Outlook(1, None)
