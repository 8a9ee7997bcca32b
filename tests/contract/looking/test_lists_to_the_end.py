"""What a list promises that is read to its end: none that stays is missed or met twice, whatever comes and goes."""

from __future__ import annotations

import random

import pytest

from django_jobs.core.values import State
from django_jobs.stores.redis import browsing
from django_jobs.stores.values.lists import Mark
from tests.contract.acts import FAILED, Q, claim, complete, enqueue, finish, start


def walk(store, state, limit=7, between=lambda ids: None, **options):
    found, mark = [], None
    while True:
        infos, mark = store.listed([Q], state, limit, mark, **options)
        ids = [info.id for info in infos]
        assert len(ids) <= limit
        found += ids
        if mark is None:
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


@pytest.mark.parametrize("scripts_refused", [False, True])
def test_leaves_out_what_ended_later(store, make_job, clock, scripts_refused):
    finish(store, State.DEAD, make_job("a"))
    mark = clock.now
    clock.advance(1)
    finish(store, State.DEAD, make_job("b"))
    groups = store.failure_groups([Q], State.DEAD)
    store._scripts_refused = scripts_refused
    for more in ({}, {"groups": groups}):
        assert walk(store, State.DEAD, until=mark, **more) == ["a"]
        assert walk(store, State.DEAD, **more) == ["a", "b"]
    assert walk(store, State.DEAD, until=mark - 1) == []


@pytest.mark.parametrize("scripts_refused", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 50])
def test_a_job_whose_result_is_kept_is_left_out_by_its_end(store, make_job, clock, scripts_refused, limit):
    """Its place in the store is that of another time: until when it is kept."""
    for n in range(12):
        complete(store, *start(store, make_job(f"{n:02}", keep_result=n * 1000 + 99_000 if n % 3 else None)))
        clock.advance(1)
        if n == 7:
            mark = clock.now - 1
    store._scripts_refused = scripts_refused
    assert sorted(walk(store, State.SUCCEEDED, limit=limit, until=mark)) == [f"{n:02}" for n in range(8)]
    assert len(walk(store, State.SUCCEEDED, limit=limit)) == 12


def test_the_time_since_when_each_could_run_is_there(store, make_job, clock):
    enqueue(store, make_job("due", run_at=clock.now + 1000), make_job("at-once"))
    clock.advance(1000)
    store.promote(Q)
    for scripts_refused in (False, True):
        store._scripts_refused = scripts_refused
        listed, _ = store.listed([Q], State.QUEUED, 5)
        for infos in (listed, store.page(Q, State.QUEUED)):
            assert {info.id: info.since for info in infos} == {"due": clock.now, "at-once": 0}


def test_more_running_jobs_than_a_page_is_sorted_from_are_all_met(store, make_job, monkeypatch):
    """Every one is met, although each answer has the jobs of one page only."""
    monkeypatch.setattr(browsing, "MOST_RUNNING", 20)
    for first in range(0, 11_000, 1000):
        assert len(start(store, *[make_job(f"{n:05}") for n in range(first, first + 1000)])) == 1000
    sizes, run = [], store.transport.run
    monkeypatch.setattr(
        store.transport, "run", lambda *call, **more: (sizes.append(len(reply := run(*call, **more))), reply)[1]
    )
    found = walk(store, State.RUNNING, limit=1000)
    assert sorted(found) == [f"{n:05}" for n in range(11_000)]
    assert max(sizes) <= 1000 * len(browsing.DETAILS)
    assert len(sizes) == 2 * 12 - 1, "two scripts for each page, of which the last is empty"
    store._scripts_refused = True
    assert len(walk(store, State.RUNNING, limit=6000)) == 11_000


@pytest.mark.parametrize("score", ["nonsense", "nan", "", "[1"])
def test_refuses_a_mark_that_is_none(store, make_job, score):
    finish(store, State.DEAD, make_job("a"))
    with pytest.raises(ValueError):
        store.listed([Q], State.DEAD, 5, Mark(score, Q, "a"))


@pytest.mark.parametrize("score", ["1_0", " 1 ", "\u0661", "infinity", "1e400", "-inf"])
def test_a_number_that_somebody_has_made_up_is_read_or_refused(store, make_job, score):
    finish(store, State.DEAD, make_job("a"))
    infos, _ = store.listed([Q], State.DEAD, 5, Mark(score, Q, "a"))
    assert [info.id for info in infos] == ([] if float(score) > 1e99 else ["a"])
