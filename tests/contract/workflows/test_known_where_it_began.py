"""A job that a retry has moved to another queue is known to whoever asks for it by the queue in which it began."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import browse, chain, get_job
from django_jobs.core.values import State
from django_jobs.operations import bulk
from django_jobs.operations.matching import count_matching
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine
from tests.contract.acts import lose_notes
from tests.contract.workflows.steps import RAN as STEPPED
from tests.contract.workflows.steps import act, nothing
from tests.contract.workflows.test_other_queue import (
    DAY,
    FATES,
    QUEUES,
    RAN,
    TOLD,
    A,
    B,
    attempt_all,
    follow,
    roam,
    run,
    wander,
)


@pytest.fixture
def store(make_store: Any, clock: Any) -> Iterator[Store]:
    """A store that keeps no job that has succeeded."""
    with override_settings(DJANGO_JOBS={"STORE": "memory", "QUEUES": QUEUES}):
        made = make_store(clock=clock, history=0)
        use_store(made)
        for some in (RAN, TOLD, FATES, STEPPED):
            some.clear()
        yield made
        use_store(None)


def test_a_caller_learns_of_an_end_that_has_left_the_history(store: Store, clock: Any) -> None:
    moved, twice = wander.enqueue(B), wander.enqueue(B, A)
    run(store, clock)
    assert [moved.wait(1), twice.wait(1)] == [None, None]
    assert [get_job(handle.id, A).state for handle in (moved, twice)] == ["succeeded", "succeeded"]


def test_a_handle_finds_and_cancels_it_when_the_first_queue_has_forgotten_it(store: Store, clock: Any) -> None:
    """The other queue is paused for longer than a queue remembers the ids of jobs that have left it."""
    seen, cancelled = (roam.enqueue(B) for _ in range(2))
    attempt_all(store)
    follow(store)
    clock.advance(3 * DAY * 1000)
    store.prune(A)
    assert store.find([A], seen.id) is None
    assert (seen.refresh().state, seen.queue) == ("retry", B)
    assert cancelled.cancel() is True
    assert get_job(cancelled.id).state == "cancelled"


def test_a_check_ends_a_step_that_is_gone_from_the_other_queue(store: Store, clock: Any) -> None:
    """The note of its end is lost, and it has left the history."""
    handle = chain(wander.s(B), nothing.s()).enqueue()
    attempt_all(store)
    follow(store)
    clock.advance(1000)
    attempt_all(store)
    lose_notes(store, B)
    clock.advance(engine.CHECK)
    store.prune(B)
    engine.check(store, handle.id, DAY)
    assert (handle.counts["succeeded"], handle.counts["live"]) == (1, 1)


def test_the_first_queue_knows_where_it_is_as_long_as_it_is_not_due(store: Store, clock: Any) -> None:
    handle = roam.enqueue(B, in_=90 * DAY)
    attempt_all(store)
    follow(store)
    clock.advance(89 * DAY * 1000)
    store.prune(A)
    (info,) = store.get_many(A, [handle.id], moved=True)
    assert (info.queue, info.state) == (B, "retry")
    assert store.kill(A, [handle.id], "no need") == [handle.id]


@pytest.mark.parametrize(("query", "number"), [("", 1), (f"queue:{A}", 0), (f"queue:{B}", 1)])
def test_a_bulk_operation_counts_it_where_it_acts_on_it(store: Store, clock: Any, query: str, number: int) -> None:
    handle = roam.enqueue(B, "dead")
    run(store, clock)
    match = browse.Match().asked(f"{query} id:{handle.id}", State.DEAD)
    assert count_matching(State.DEAD, match).matching == number
    assert bulk.finish(bulk.start("delete", State.DEAD, match)).moved == number


@pytest.mark.parametrize("arrived", [False, True], ids=["on its way", "arrived"])
def test_the_page_of_a_workflow_shows_the_job_of_its_step(store: Store, arrived: bool) -> None:
    handle = chain(roam.s(B, in_=DAY), act.s("next")).enqueue()
    attempt_all(store)
    if arrived:
        follow(store)
    (info,) = browse.jobs_of(browse.steps(handle.id)).values()
    assert (info.state, info.queue) == ("retry", B if arrived else A)
