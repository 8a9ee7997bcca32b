"""Ends of jobs whose `on_end` or `on_dead` job cannot be enqueued now: they wait, and hold up nothing else."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import StoreUnavailable, job
from django_jobs.core import registry
from django_jobs.execution.executor import Executor
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.workflows import NOTES_AT_ONCE
from django_jobs.workflows import end_calls
from tests.contract.workflows.steps import LEASE, store
from tests.contract.workflows.test_end_calls import DEATHS, TOLD, Q, deaf, end_only, mourn, nothing_told, run, work

__all__ = ["nothing_told", "store"]

ELSEWHERE = "elsewhere"


@job(name="tests.ends.tell_elsewhere", queue=ELSEWHERE)
def tell_elsewhere(told: dict[str, Any]) -> None:
    TOLD.append(told)


elsewhere = work.using(on_end=tell_elsewhere, on_dead=None)


def test_an_end_has_one_job_however_long_the_other_job_of_this_end_has_to_wait(store: Store, clock: Any) -> None:
    """The id of the job that has run is forgotten meanwhile."""
    work.enqueue(-1)
    registry.unregister("tests.ends.mourn")
    try:
        for _ in range(4):
            run(store)
            clock.advance(30 * 86_400_000)
            store.prune(Q)
            store.forget_identities()
    finally:
        registry.register(mourn)
    run(store)
    assert (len(TOLD), len(DEATHS)) == (1, 1)


def test_ends_get_what_room_there_is_although_it_is_not_enough_for_all(store: Store, settings: Any) -> None:
    """Other jobs always wait in that queue, so that it never has room for all of them at once."""
    queues = {"default": {}, ELSEWHERE: {"MAX_LENGTH": 3}}
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "QUEUES": queues}):
        use_store(store)
        elsewhere.enqueue_many([(n,) for n in range(7)])
        end_only(store)
        deaf.using(queue=ELSEWHERE).enqueue()
        counts = []
        while end_calls.follow(store, Q):
            counts.append(store.stats([ELSEWHERE])[0].counts["queued"])
            for claim in store.claim(ELSEWHERE, "w", 2, lease=LEASE).claims:
                Executor(close_connections=False).run(claim, store)
            deaf.using(queue=ELSEWHERE).enqueue()
        run(store)
    assert counts[:2] == [3, 3]
    assert len(TOLD) == 7


def test_a_queue_is_asked_once_for_all_the_ends_that_it_has_room_for(
    store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    add = store.enqueue

    def noted(queue: str, jobs: Any, **options: Any) -> Any:
        asked.append(len(jobs))
        return add(queue, jobs, **options)

    queues = {"default": {}, ELSEWHERE: {"MAX_LENGTH": 8}}
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "QUEUES": queues}):
        use_store(store)
        elsewhere.enqueue_many([(n,) for n in range(20)])
        end_only(store)
        deaf.using(queue=ELSEWHERE).enqueue()
        monkeypatch.setattr(store, "enqueue", noted)
        assert (end_calls.follow(store, Q), asked) == (7, [8])
        assert store.stats([ELSEWHERE])[0].counts["queued"] == 8


def test_a_worker_does_not_read_all_waiting_ends_at_each_end(
    store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues: dict[str, Any] = {Q: {}, ELSEWHERE: {"MAX_LENGTH": 1}}
    looks: list[str] = []
    ends_of = store.end_calls

    def look(queue: str, position: int = 0) -> Any:
        looks.append(queue)
        return ends_of(queue, position)

    monkeypatch.setattr(store, "end_calls", look)
    monkeypatch.setattr(end_calls, "monotonic", map(float, count()).__next__)
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "QUEUES": queues}):
        use_store(store)
        deaf.using(queue=ELSEWHERE).enqueue()
        elsewhere.enqueue_many([(n,) for n in range(100)])
        for claim in store.claim(Q, "w", 100, lease=LEASE).claims:
            Executor(close_connections=False).run(claim, store)
    assert 5 < len(looks) < 30


def test_ends_whose_queue_is_away_hold_up_no_others(
    store: Store, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = store.enqueue

    def refused(queue: str, *args: Any, **kwargs: Any) -> Any:
        if queue == ELSEWHERE:
            raise StoreUnavailable("not there")
        return enqueue(queue, *args, **kwargs)

    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, "QUEUES": {"default": {}, ELSEWHERE: {}}}):
        use_store(store)
        work.using(on_end=mourn).enqueue_many([(n,) for n in range(NOTES_AT_ONCE * 3)])
        elsewhere.enqueue_many([(n,) for n in range(5)])
        end_only(store)
        monkeypatch.setattr(store, "enqueue", refused)
        monkeypatch.setattr(store, "server_of", str)
        with pytest.raises(StoreUnavailable):
            end_calls.follow(store, Q)
        monkeypatch.undo()
        assert len(store.end_calls(Q)[0]) == 5
        run(store)
    assert (len(TOLD), len(DEATHS)) == (5, NOTES_AT_ONCE * 3)
