"""What `walk` promises: none that stays is missed or met twice, whatever comes and goes between the calls."""

from __future__ import annotations

import random

import pytest

from django_jobs.core.values import State
from tests.contract.acts import FAILED, Q, claim, complete, enqueue, finish, start


def walk(store, state, limit=7, between=lambda ids: None, **options):
    found, cursor = [], ""
    while True:
        ids, cursor = store.walk(Q, state, cursor, limit, **options)
        assert len(ids) <= limit
        found += ids
        if not cursor:
            return found
        between(ids)


@pytest.fixture
def fill(store, make_job, clock):
    """So many jobs in a state, most of them at the same time."""

    def act(state, number):
        ids = [f"{n:03}" for n in range(number)]
        given = {"run_at": clock.now + 1000} if state is State.SCHEDULED else {}
        jobs = [make_job(id, alone=state is State.QUEUED and id > "100", **given) for id in ids]
        random.Random(1).shuffle(jobs)
        if state in (State.SCHEDULED, State.QUEUED):
            enqueue(store, *jobs)
        elif state is State.RUNNING:
            start(store, *jobs)
        elif state is State.RETRY:
            for held in start(store, *jobs):
                store.retry(held, FAILED, 1000)
        elif state is State.BLOCKED:
            store.pause(Q, name="typed")
            enqueue(store, *[make_job(id, name="typed") for id in ids])
            claim(store, 500)
        elif state is State.SUCCEEDED:
            half = number // 2
            complete(store, *start(store, *jobs[:half]))
            complete(store, *start(store, *[make_job(job.id, keep_result=99_000) for job in jobs[half:]]), result=b"1")
        else:
            finish(store, state, *jobs)
        return ids

    return act


@pytest.mark.parametrize("state", [state for state in State if state is not State.EXPIRED])
def test_meets_each_job_of_a_state_once(store, fill, state):
    ids = fill(state, 150)
    assert sorted(walk(store, state)) == ids
    assert sorted(walk(store, state, limit=150)) == ids
    assert walk(store, State.EXPIRED) == []


@pytest.mark.parametrize("state", [State.SCHEDULED, State.DEAD, State.QUEUED, State.BLOCKED])
def test_meets_those_that_stay_while_others_leave(store, fill, state):
    ids = fill(state, 200)
    gone: list[str] = []

    def leave(met):
        rest = [id for id in ids if id not in gone and id not in met][-3:]
        gone.extend([*met, *rest])
        store.delete(Q, [*met, *rest])

    found = walk(store, state, between=leave)
    assert len(found) == len(set(found))
    assert set(ids) - set(gone) <= set(found)


def test_leaves_out_what_ended_later(store, make_job, clock):
    finish(store, State.DEAD, make_job("a"))
    mark = clock.now
    clock.advance(1)
    finish(store, State.DEAD, make_job("b"))
    assert walk(store, State.DEAD, until=mark) == ["a"]
    assert sorted(walk(store, State.DEAD)) == ["a", "b"]


def test_refuses_a_cursor_that_is_none(store, make_job):
    finish(store, State.DEAD, make_job("a"))
    with pytest.raises(ValueError):
        store.walk(Q, State.DEAD, "nonsense")
