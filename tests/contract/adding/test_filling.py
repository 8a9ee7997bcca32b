"""What `enqueue` with `fills` promises: a queue with a maximum length takes the first jobs of a call that fit."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, State
from tests.contract.acts import Q, claim_ids, enqueue, ids_in, start, state_of, totals

KEY = "ab" * 32
#: "mixed": a job with a time is in the call.
WAYS = pytest.mark.parametrize("way", ["alike", "mixed"])


@pytest.fixture
def fill(store, make_job, clock):
    def call(way, jobs, *, max_length):
        beside = [make_job(run_at=clock.now + 1)] if way == "mixed" else []
        answers = store.enqueue(Q, [*jobs, *beside], max_length=max_length, fills=True)
        assert answers[len(jobs) :] == [Added.ADDED] * len(beside), "a job for a later time needs no room"
        return answers[: len(jobs)]

    return call


@WAYS
def test_the_first_jobs_get_the_room_in_their_order(store, make_job, fill, way):
    enqueue(store, make_job("a"))
    answers = fill(way, [make_job(id) for id in "dbce"], max_length=3)
    assert answers == [Added.ADDED, Added.ADDED, Added.FULL, Added.FULL]
    assert totals(store)["enqueued"] == 3 + (way == "mixed")
    assert claim_ids(store, 9) == ["a", "d", "b"]


@WAYS
def test_a_queue_that_holds_more_than_it_may_takes_none(store, make_job, fill, way):
    enqueue(store, *[make_job(id) for id in "abc"])
    assert fill(way, [make_job("d")], max_length=2) == [Added.FULL]
    assert state_of(store, "d") is None


@WAYS
def test_jobs_of_every_lane_and_blocked_ones_count(store, make_job, fill, way):
    start(store, make_job("runs", limit_key="k", limit=1), make_job("blocked", limit_key="k", limit=1))
    assert state_of(store, "blocked") is State.BLOCKED
    answers = fill(way, [make_job("b", alone=True), make_job("c"), make_job("d", alone=True)], max_length=3)
    assert answers == [Added.ADDED, Added.ADDED, Added.FULL]


@WAYS
def test_what_adds_nothing_takes_no_room_also_behind_the_last_that_fits(store, make_job, fill, way):
    known = make_job("known")
    enqueue(store, known, make_job("holder", unique=KEY))
    jobs = [make_job("twin", unique=KEY), make_job("a"), make_job("b"), known, make_job("triplet", unique=KEY)]
    answers = [Added.DUPLICATE, Added.ADDED, Added.FULL, Added.ADDED, Added.DUPLICATE]
    assert fill(way, jobs, max_length=3) == answers


@WAYS
def test_a_job_without_room_leaves_no_trace(store, make_job, fill, way):
    refused = make_job("a", unique=KEY, digest="d" * 20)
    twin = make_job("twin", unique=KEY, digest="d" * 20)
    first = make_job("first", digest="d" * 20)
    assert fill(way, [first, refused, twin], max_length=1) == [Added.ADDED, Added.FULL, Added.FULL]
    assert (state_of(store, "a"), store.remembered(Q, "a"), store.remembered(Q, "twin")) == (None, None, None)
    assert enqueue(store, twin) == [Added.ADDED]
    assert enqueue(store, refused) == [Added.DUPLICATE]


def test_no_job_of_a_call_gets_room_that_came_free_behind_one_without_room(store, make_job, clock):
    """The second job moves another one to a later time."""
    policy = {"unique": KEY, "on_conflict": "debounce"}
    enqueue(store, make_job("waits", **policy))
    jobs = [make_job("first"), make_job("moves", run_at=clock.now + 9, **policy), make_job("last")]
    answers = store.enqueue(Q, jobs, max_length=1, fills=True)
    assert answers == [Added.FULL, Added.REPLACED, Added.FULL]
    assert ids_in(store, State.SCHEDULED) == ["waits"]


@WAYS
def test_without_a_maximum_length_all_fit(fill, make_job, way):
    assert fill(way, [make_job(), make_job()], max_length=0) == [Added.ADDED, Added.ADDED]
