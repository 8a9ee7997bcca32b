"""A job that is in no place at all, which no transition leaves behind: what `reconcile` does with it."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Lane, State
from django_jobs.stores.redis.stats import PLACES
from tests.contract.acts import Q, claim, claim_alone, claim_ids, enqueue, info, start, state_of, totals


def misplace(store, id):
    """Damage done by hand: the record stays, nothing else says where the job is."""
    names = store.keys.of(Q)
    for place, _ in PLACES:
        store.transport.command("HDEL" if place == "claims" else "ZREM", names[place], id)


def repairs(store):
    return {kind: count for kind, count in store.reconcile(Q).items() if count}


def test_runs_again_by_default(store, make_job):
    start(store, make_job("a"))
    misplace(store, "a")
    assert repairs(store) == {"job_without_place": 1}
    assert [claimed.id for claimed in claim(store)] == ["a"]


@pytest.mark.parametrize("began", [True, False])
def test_that_may_run_at_most_once_is_dead_with_the_reason(store, make_job, clock, began):
    """Nobody can tell any more whether it has begun."""
    job = make_job("a", at_most_once=True, unique="ab" * 32, unique_mode="running")
    (start if began else enqueue)(store, job)
    misplace(store, "a")
    assert repairs(store) == {"job_without_place": 1}
    found = info(store, "a")
    assert (found.state, found.at) == (State.DEAD, clock.now)
    assert (found.attempts[-1].outcome, found.attempts[-1].at) == ("misplaced", clock.now)
    assert "must not run twice" in found.attempts[-1].error
    assert totals(store)["dead"] == totals(store)["dead:tests.job"] == 1
    assert claim(store) == claim_alone(store) == []


def test_that_is_dead_frees_its_lock_and_is_looked_at_once(store, make_job):
    unique = {"unique": "ab" * 32, "unique_mode": "running"}
    enqueue(store, make_job("a", at_most_once=True, **unique))
    misplace(store, "a")
    store.reconcile(Q)
    assert repairs(store) == {}
    assert len(info(store, "a").attempts) == 1
    enqueue(store, make_job("b", **unique))
    assert state_of(store, "b") is State.QUEUED


def test_that_is_dead_goes_to_the_archive(make_store, make_job):
    store = make_store(archive=True)
    enqueue(store, make_job("a", at_most_once=True))
    misplace(store, "a")
    store.reconcile(Q)
    ((_, archived),) = store.archive_batch(Q)
    assert (archived.id, archived.state, archived.attempts[-1].outcome) == ("a", State.DEAD, "misplaced")


def test_that_a_person_revives_runs_once_more(store, make_job):
    enqueue(store, make_job("a", at_most_once=True))
    misplace(store, "a")
    store.reconcile(Q)
    assert store.revive(Q, ["a"]) == ["a"]
    assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}


def test_that_is_dead_is_told_to_the_caller_once(store, make_job):
    """Signals are sent for it, so the record comes along; those that run again die of nothing."""
    job = make_job("a", at_most_once=True)
    enqueue(store, job, make_job("b"))
    misplace(store, "a")
    misplace(store, "b")
    buried = []
    store.reconcile(Q, buried=buried)
    store.reconcile(Q, buried=buried)
    assert buried == [("a", job.record)]


def forget_that_it_runs(store, id):
    """Damage done by hand: nobody will say that the slot of this job is free."""
    slots = store.keys.of(Q)["slots"]
    members = store.transport.command("ZRANGE", slots, 0, -1)
    assert store.transport.command("ZREM", slots, *[each for each in members if each.endswith(id.encode())]) == 1


def test_waiters_behind_many_that_are_sound_are_reached_in_time(store, make_job):
    """Each step looks at a few limits: the next goes on behind them, and after the last begins again."""
    keys = [f"k{n}" for n in range(7)]
    enqueue(store, *[make_job(f"{key} {n}", limit_key=key, limit=1) for n in range(2) for key in keys])
    assert len(claim(store, 14)) == 7
    for key in ("k6", "k0", "k3"):
        forget_that_it_runs(store, f"{key} 0")
        repaired = [store.reconcile(Q, 2)["waiter_without_limit"] for _ in range(4)]
        assert sum(repaired) == 1, f"{key}: within one round"
        assert claim_ids(store, 9) == [f"{key} 1"]


# -- looking only ------------------------------------------------------------------


def test_a_queue_at_work_has_no_faults(store, make_job, clock):
    limited = {"limit_key": "k", "limit": 1}
    enqueue(
        store,
        make_job("a", unique="ab" * 32, unique_mode="running"),
        make_job("b", **limited),
        make_job("c", **limited),
    )
    enqueue(store, make_job("period", unique="cd" * 32, unique_mode="period", unique_for=10))
    assert len(claim(store, 3)) == 3
    clock.advance(1_000)
    assert store.faults(Q) == ({}, True)


def test_faults_are_named_and_left_as_they_are(store, make_job):
    enqueue(store, make_job("a"), make_job("b", at_most_once=True), make_job("sound"))
    misplace(store, "a")
    misplace(store, "b")
    found, whole = store.faults(Q)
    assert sorted(found.pop("job_without_place")) == ["a", "b"]
    assert (found, whole) == ({}, True)
    assert repairs(store) == {"job_without_place": 2}, "nothing had been done"
    assert store.faults(Q) == ({}, True)


def test_a_look_for_faults_says_when_it_has_not_seen_everything(store, make_job):
    for start_at in range(0, 3000, 1000):
        enqueue(store, *[make_job(f"job-{start_at + n}") for n in range(1000)])
    assert store.faults(Q, 1000) == ({}, False)
    assert store.faults(Q, 9000) == ({}, True)


def test_one_process_checks_a_queue_for_all_until_it_stops_to(store, clock):
    assert store.check_turn(Q, "a", 30_000) == 0
    clock.advance(10_000)
    assert store.check_turn(Q, "b", 30_000) == 20_000
    assert store.check_turn("other", "b", 30_000) == 0
    assert store.check_turn(Q, "a", 30_000) == 0, "it may again, and keeps the turn"
    clock.advance(29_999)
    assert store.check_turn(Q, "b", 30_000) == 1
    clock.advance(1)
    assert store.check_turn(Q, "b", 30_000) == 0
    assert store.check_turn(Q, "a", 30_000) == 30_000


def test_keys_that_are_free_by_now_are_no_faults(store, make_job, clock):
    """Of a job that is too late to start, and of a period that is over: nothing is wrong, and nothing is reported."""
    enqueue(store, make_job("late", unique="ab" * 32, expires_at=clock.now + 500))
    enqueue(store, make_job("period", unique="cd" * 32, unique_mode="period", unique_for=10))
    clock.advance(70_000)
    assert store.faults(Q).found == {}
    assert repairs(store) == {}
