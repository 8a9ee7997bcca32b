"""What becomes of the jobs of a lost worker: `recover` and `overdue`."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Lane, State
from tests.contract.acts import (
    FAILED,
    LEASE,
    Q,
    claim,
    claim_alone,
    complete,
    counts,
    enqueue,
    info,
    start,
    state_of,
)


class TestRecover:
    @pytest.mark.accepts("G51", "G60", "R04", "R17")
    def test_takes_the_jobs_of_every_worker_whose_lease_is_over(self, store, make_job, clock):
        start(store, make_job("a"))
        clock.advance(1)
        start(store, make_job("b"), worker="alive")
        clock.advance(LEASE - 1)
        recovered = store.recover(Q)
        assert [(r.id, r.state, r.crashes, r.worker) for r in recovered] == [("a", State.QUEUED, 1, "w")]
        assert state_of(store, "b") is State.RUNNING

    def test_takes_the_jobs_of_a_worker_that_is_known_dead_at_once(self, store, make_job):
        start(store, make_job("a"), make_job("b"))
        start(store, make_job("c"), worker="alive")
        assert sorted(r.id for r in store.recover(Q, worker="w")) == ["a", "b"]
        assert counts(store) == {"queued": 2, "running": 1}

    def test_sends_the_job_to_run_alone(self, store, make_job):
        start(store, make_job("a"))
        store.recover(Q, worker="w")
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}
        (again,) = claim_alone(store)
        assert (again.crashes, again.failures, again.attempt) == (1, 0, 2)

    @pytest.mark.parametrize("worker", ["w", 'shop "one" \\ \t\x01', "wörker"])
    def test_logs_which_attempt_was_lost_and_whose(self, store, make_job, clock, worker):
        (claimed,) = start(store, make_job("a"), worker=worker)
        store.retry(claimed, FAILED, 0)
        clock.advance(1)
        assert (claim(store, worker=worker) or claim_alone(store, worker=worker))[0].attempt == 2
        store.recover(Q, worker=worker)
        logged = info(store, "a").attempts[-1]
        assert (logged.outcome, logged.attempt, logged.worker) == ("worker_lost", 2, worker)

    @pytest.mark.parametrize("controls", [{}, {"at_most_once": True}])
    @pytest.mark.parametrize("verb", ["recover", "release_worker"])
    def test_tells_which_attempt_it_was_and_how_long_it_was_held(self, store, make_job, clock, verb, controls):
        started = clock.now
        start(store, make_job("a", **controls))
        clock.advance(700)
        (moved,) = store.recover(Q, worker="w") if verb == "recover" else store.release_worker(Q, "w")
        assert (moved.attempt, moved.claimed_at, moved.at) == (1, started, started + 700)

    def test_buries_a_job_at_its_third_crash(self, store, make_job):
        enqueue(store, make_job("a"))
        states = []
        for _ in range(3):
            assert claim(store) or claim_alone(store)
            states += [r.state for r in store.recover(Q, worker="w")]
        assert states == [State.QUEUED, State.QUEUED, State.DEAD]
        assert info(store, "a").crashes == 3
        assert [a.outcome for a in info(store, "a").attempts] == ["worker_lost"] * 3

    def test_follows_the_number_of_crashes_that_was_set(self, make_store, make_job):
        store = make_store(max_crashes=1)
        start(store, make_job("a"))
        assert store.recover(Q, worker="w")[0].state is State.DEAD

    def test_buries_what_may_run_at_most_once(self, store, make_job):
        start(store, make_job("a", at_most_once=True))
        assert [r.state for r in store.recover(Q, worker="w")] == [State.DEAD]
        assert state_of(store, "a") is State.DEAD

    def test_cancels_what_was_asked_to_stop(self, store, make_job):
        start(store, make_job("a"))
        store.cancel(Q, ["a"])
        assert [r.state for r in store.recover(Q, worker="w")] == [State.CANCELLED]
        assert state_of(store, "a") is State.CANCELLED

    def test_takes_at_most_as_many_as_asked_for(self, store, make_job, clock):
        start(store, *[make_job() for _ in range(5)])
        clock.advance(LEASE)
        assert [len(store.recover(Q, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


class TestRemoteHolders:
    def test_are_never_recovered(self, store, make_job, clock):
        start(store, make_job("a"), worker="remote:a")
        clock.advance(LEASE)
        assert store.recover(Q) == []
        assert state_of(store, "a") is State.RUNNING

    @pytest.mark.accepts("K19")
    def test_are_overdue_when_their_lease_is_over(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        (claimed,) = claim(store, worker="remote", lease_each=True)
        assert store.overdue(Q) == []
        clock.advance(LEASE)
        assert store.overdue(Q) == [claimed._replace(overdue=True)]

    def test_settle_like_any_claim(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        claim(store, worker="remote", lease_each=True)
        clock.advance(LEASE)
        assert store.retry(store.overdue(Q)[0], FAILED, 10) is State.RETRY
        assert store.overdue(Q) == []

    def test_leave_no_lease_behind_when_they_succeed(self, store, make_job):
        enqueue(store, make_job("a"))
        (claimed,) = claim(store, worker="remote", lease_each=True)
        assert complete(store, claimed) == []
        assert store.extend(Q, [claimed.worker], LEASE) == {}

    def test_are_told_as_many_as_asked_for(self, store, make_job, clock):
        enqueue(store, *[make_job() for _ in range(3)])
        claim(store, 3, "remote", lease_each=True)
        clock.advance(LEASE)
        assert len(store.overdue(Q, 2)) == 2
