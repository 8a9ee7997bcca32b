"""A job that is in no place at all, which no transition leaves behind: what `reconcile` does with it."""

from __future__ import annotations

import pytest

from django_jobs.stores.redis import RedisStore
from django_jobs.stores.redis.stats import PLACES
from django_jobs.values import Lane, State
from tests.contract.acts import Q, claim, claim_alone, enqueue, info, start, state_of, totals


def misplace(store, id):
    """Damage done by hand: the record stays, nothing else says where the job is."""
    if isinstance(store, RedisStore):
        names = store.keys.of(Q)
        for place, _ in PLACES:
            store.transport.command("HDEL" if place == "claims" else "ZREM", names[place], id)
    else:
        with store.database.write() as raw:
            raw.execute("UPDATE jobs SET state = 'nowhere' WHERE id = ?", (id,))


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
