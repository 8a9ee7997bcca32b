"""What people do to jobs: cancel, revive, delete, kill, reschedule, restore, ids."""

from __future__ import annotations

import pytest

from django_jobs.core.attempt import counted
from django_jobs.core.values import State
from tests.contract.acts import (
    FAILED,
    Q,
    claim,
    claim_ids,
    enqueue,
    finish,
    ids_in,
    info,
    start,
    state_of,
    totals,
)


@pytest.fixture
def in_state(store, make_job, clock):
    """Bring a new job to a state."""

    def bring(id, state, **given):
        if state is State.SCHEDULED:
            enqueue(store, make_job(id, run_at=clock.now + 60_000, **given))
        elif state is State.BLOCKED:
            start(store, make_job(f"{id}-first", limit_key=id, limit=1), make_job(id, limit_key=id, limit=1, **given))
        elif state is State.EXPIRED:
            start(store, make_job(id, expires_at=clock.now, **given))
        elif state is State.QUEUED:
            enqueue(store, make_job(id, **given))
        elif state is State.RUNNING:
            start(store, make_job(id, **given))
        elif state is State.RETRY:
            store.retry(start(store, make_job(id, **given))[0], FAILED, 60_000)
        else:
            finish(store, state, make_job(id, **given))
        assert state_of(store, id) is state

    return bring


WAITING = [State.SCHEDULED, State.QUEUED, State.RETRY, State.BLOCKED]
FINISHED = [State.SUCCEEDED, State.DEAD, State.CANCELLED, State.EXPIRED]


class TestCancel:
    @pytest.mark.parametrize("state", WAITING)
    def test_moves_a_waiting_job_to_cancelled(self, store, in_state, clock, state):
        in_state("a", state)
        assert store.cancel(Q, ["a"]) == {"a": State.CANCELLED}
        assert (info(store, "a").state, info(store, "a").at) == (State.CANCELLED, clock.now)
        assert ids_in(store, state) == []
        assert totals(store)["cancelled"] == 1

    @pytest.mark.parametrize("state", FINISHED)
    def test_leaves_a_finished_job_alone_and_says_what_it_is(self, store, in_state, state):
        in_state("a", state)
        assert store.cancel(Q, ["a"]) == {"a": state}

    def test_leaves_out_what_does_not_exist(self, store):
        assert store.cancel(Q, ["nothing"]) == {}

    def test_is_not_remembered_by_the_next_attempt(self, store, in_state):
        in_state("a", State.RUNNING)
        store.cancel(Q, ["a"])
        store.recover(Q, worker="w")
        store.revive(Q, ["a"])
        claim(store)
        assert list(store.extend(Q, ["w"], 1000)["w"]) == []


class TestRevive:
    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED, State.EXPIRED, State.SCHEDULED])
    def test_leaves_alone_what_must_not_be_started_twice_unless_it_is_said(self, store, in_state, state):
        in_state("once", state, at_most_once=True)
        in_state("often", state)
        may_have_started = state in {State.DEAD, State.CANCELLED}
        moved = store.revive(Q, ["once", "often"], start_again=False)
        assert moved == (["often"] if may_have_started else ["once", "often"])
        assert state_of(store, "once") is (state if may_have_started else State.QUEUED)
        if may_have_started:
            assert store.revive(Q, ["once"], start_again=True) == ["once"]

    @pytest.mark.accepts("G59")
    @pytest.mark.parametrize("state", [s for s in WAITING + FINISHED if s not in {State.QUEUED, State.SUCCEEDED}])
    def test_moves_it_to_queued_now(self, store, in_state, state):
        in_state("a", state)
        assert store.revive(Q, ["a"]) == ["a"]
        assert state_of(store, "a") is State.QUEUED
        assert ids_in(store, state) == []

    @pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED])
    def test_leaves_others_alone(self, store, in_state, state):
        in_state("a", state)
        assert store.revive(Q, ["a", "nothing"]) == []
        assert state_of(store, "a") is state

    @pytest.mark.accepts("G79")
    def test_counts_from_0_again_after_an_end_but_keeps_the_log(self, store, in_state):
        in_state("a", State.DEAD)
        store.revive(Q, ["a"])
        found = info(store, "a")
        assert (found.failures, found.crashes, len(found.attempts)) == (0, 0, 1)
        assert (claim(store)[0].attempt, info(store, "a").failures) == (2, 0), (
            "the number of an attempt is not given again"
        )

    def test_goes_on_counting_before_an_end(self, store, in_state):
        in_state("a", State.RETRY)
        store.revive(Q, ["a"])
        assert claim(store)[0].attempt == 2

    def test_follows_the_controls_of_a_new_record(self, store, in_state, make_job):
        in_state("a", State.DEAD)
        enqueue(store, make_job("first"))
        store.revive(Q, ["a"], record=make_job("a", priority=3).record)
        assert claim_ids(store, 2) == ["a", "first"]


class TestDelete:
    @pytest.mark.parametrize("state", WAITING + FINISHED)
    def test_removes_every_trace(self, store, in_state, make_job, state):
        in_state("a", state)
        assert store.delete(Q, ["a"]) == ["a"]
        assert store.get(Q, "a") is None
        assert ids_in(store, state) == []
        in_state("a", State.QUEUED)
        found = info(store, "a")
        assert (found.attempts, found.result, found.failures) == ((), None, 0)

    def test_leaves_a_running_job_alone(self, store, in_state):
        in_state("a", State.RUNNING)
        assert store.delete(Q, ["a", "nothing"]) == []
        assert state_of(store, "a") is State.RUNNING

    def test_of_an_id_named_twice_is_one(self, store, in_state):
        in_state("a", State.QUEUED)
        assert store.delete(Q, ["a", "a"]) == ["a"]


class TestKill:
    @pytest.mark.parametrize("state", [*WAITING, State.RUNNING])
    def test_moves_it_to_dead_and_logs_why(self, store, in_state, clock, state):
        in_state("a", state)
        assert store.kill(Q, ["a"], "by hand") == ["a"]
        found = info(store, "a")
        assert (found.state, found.at) == (State.DEAD, clock.now)
        assert (found.attempts[-1].outcome, found.attempts[-1].error) == ("killed", "by hand")
        assert totals(store)["dead"] == 1

    def test_logs_which_attempt_it_ended_and_whose(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.retry(claimed, FAILED, 0)
        (again,) = claim(store, worker="another")
        store.kill(Q, ["a"], "by hand")
        logged = info(store, "a").attempts[-1]
        assert (logged.attempt, logged.worker) == (again.attempt, "another") == (2, "another")

    def test_ends_no_attempt_of_a_job_that_waits_and_logs_the_number_0(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.retry(claimed, FAILED, 5_000)
        store.kill(Q, ["a"], "by hand")
        assert (info(store, "a").attempts[-1].attempt, info(store, "a").attempts[-1].worker) == (0, "")
        assert counted(info(store, "a")) == [True, False]

    @pytest.mark.parametrize("end", ["kill", "stop", "discard", "bury"])
    def test_and_every_other_end_gives_the_number_of_the_attempt_to_no_later_one(self, store, make_job, end):
        (held,) = start(store, make_job("a"))
        if end == "kill":
            store.kill(Q, ["a"], "by hand")
            store.release(Q, [held])
        elif end == "stop":
            store.cancel(Q, ["a"])
            store.release(Q, [held])
        else:
            getattr(store, end)(held, FAILED)
        for _ in range(2):
            store.revive(Q, ["a"])
            store.kill(Q, ["a"], "while it waits")
        store.revive(Q, ["a"])
        (again,) = claim(store)
        assert (held.attempt, again.attempt, again.failures, again.crashes) == (1, 2, 0, 0)
        assert info(store, "a").earlier == 1

    def test_leaves_a_log_in_which_the_attempts_that_count_have_increasing_numbers(self, store, make_job):
        """Attempts before a person let the job run again do not count, and no number is given out again."""
        (held,) = start(store, make_job("a"))
        store.retry(held, FAILED._replace(attempt=1), 0)
        (held,) = claim(store)
        store.kill(Q, ["a"], "by hand")
        assert counted(info(store, "a")) == [True, True], "it has ended after two attempts"
        store.release(Q, [held])
        store.revive(Q, ["a"])
        assert counted(info(store, "a")) == [False, False], "all attempts are there again"
        (held,) = claim(store)
        assert counted(info(store, "a")) == [False, False]
        store.retry(held, FAILED._replace(attempt=held.attempt), 0)
        assert counted(info(store, "a")) == [False, False, True]
        (held,) = claim(store)
        store.retry(held, FAILED._replace(attempt=held.attempt), 0)
        found = info(store, "a")
        assert [entry.attempt for entry in found.attempts] == [1, 2, 3, 4]
        assert counted(found) == [False, False, True, True]

    @pytest.mark.parametrize("state", FINISHED)
    def test_leaves_a_finished_job_alone(self, store, in_state, state):
        in_state("a", state)
        assert store.kill(Q, ["a", "nothing"], "by hand") == []
        assert state_of(store, "a") is state


class TestReschedule:
    @pytest.mark.parametrize("state", WAITING)
    def test_moves_a_waiting_job_to_another_time(self, store, in_state, clock, state):
        in_state("a", state)
        assert store.reschedule(Q, ["a"], clock.now + 777) == ["a"]
        expected = State.RETRY if state is State.RETRY else State.SCHEDULED
        assert (info(store, "a").state, info(store, "a").at) == (expected, clock.now + 777)

    @pytest.mark.parametrize("state", [State.RUNNING, *FINISHED])
    def test_leaves_others_alone(self, store, in_state, clock, state):
        in_state("a", state)
        assert store.reschedule(Q, ["a", "nothing"], clock.now + 777) == []
        assert state_of(store, "a") is state


class TestWalkingTheIds:
    @pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.RUNNING, State.DEAD, State.SUCCEEDED])
    def test_names_each_once(self, store, in_state, make_job, state):
        for n in range(7):
            in_state(str(n), state)
        enqueue(store, make_job("other"))
        store.cancel(Q, ["other"])
        seen, cursor = [], ""
        while True:
            ids, cursor = store.ids(Q, state, cursor, 3)
            seen += ids
            if not cursor:
                break
        assert sorted(seen) == [str(n) for n in range(7)]

    def test_misses_nobody_when_those_behind_the_cursor_go(self, make_store, make_job):
        store = make_store()
        finish(store, State.DEAD, *[make_job(str(n)) for n in range(50)])
        seen, cursor = set(), ""
        while True:
            ids, cursor = store.ids(Q, State.DEAD, cursor, 10)
            seen |= set(ids)
            store.delete(Q, ids)
            if not cursor:
                break
        assert seen == {str(n) for n in range(50)}

    def test_of_an_empty_state_is_empty(self, store):
        assert store.ids(Q, State.DEAD) == ([], "")
