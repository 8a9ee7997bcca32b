"""kill: a person ends a job, and with it the process that runs it; until that has ended it has not."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Added, Killed, Lane, State
from tests.contract.acts import (
    FAILED,
    LEASE,
    Q,
    claim,
    claim_alone,
    claim_ids,
    complete,
    enqueue,
    info,
    notes_of,
    start,
    state_of,
)

KEY, OTHER = "ab" * 32, "cd" * 32


def lose(store, clock):
    """The lease of "w" ends, and maintenance looks."""
    clock.advance(LEASE)
    store.extend(Q, ["other"], LEASE)
    store.recover(Q)


def silent(store, clock):
    """The lease of a remote worker ends, and maintenance looks."""
    clock.advance(LEASE)
    store.extend(Q, ["other"], LEASE)
    assert store.overdue(Q) == []
    store.recover(Q)


def report(store, claimed, token=None):
    """A remote worker says that it has ended an attempt; it does not know when that was claimed, and may not know the
    token (0)."""
    store.release(Q, [claimed._replace(token=claimed.token if token is None else token, claimed_at=1)])


def hand_over(store, claimed):
    """The attempt goes on at a remote worker, which its worker did not know to be too late."""
    assert not store.transfer(claimed, f"remote:{claimed.id}", LEASE)


#: how a killed attempt ends → what says so to the store
ENDS = {
    "its worker settles it": lambda store, claimed, clock: complete(store, claimed),
    "its worker says that it failed": lambda store, claimed, clock: store.retry(claimed, FAILED, 0),
    "its worker hands it back": lambda store, claimed, clock: store.release(Q, [claimed]),
    "its process was ended": lambda store, claimed, clock: store.release_worker(Q, "w"),
    "its process died": lambda store, claimed, clock: store.recover(Q, worker="w"),
    "its lease ended": lambda store, claimed, clock: lose(store, clock),
    "its remote worker reports": lambda store, claimed, clock: report(store, claimed),
    "its remote worker reports its number": lambda store, claimed, clock: report(store, claimed, 0),
    "it was handed over, and a report comes": lambda store, claimed, clock: (
        hand_over(store, claimed),
        report(store, claimed),
    ),
    "it was handed over, and no report comes": lambda store, claimed, clock: (
        hand_over(store, claimed),
        silent(store, clock),
    ),
}


def kill_running(store, *jobs, state=State.DEAD):
    """The claims of these, which were killed while they ran."""
    claims = start(store, *jobs)
    assert store.kill(Q, [claimed.id for claimed in claims], "by hand", state) == [claimed.id for claimed in claims]
    return claims


def told(store, worker="w"):
    return [(id, getattr(id, "token", None)) for id in store.extend(Q, [worker], LEASE).get(worker, ())]


def test_the_holder_is_told_which_attempt_to_end_until_it_has_ended(store, make_job):
    (claimed,) = kill_running(store, make_job("a"))
    assert told(store) == told(store) == [("a", claimed.token)]
    assert all(isinstance(id, Killed) for id in store.extend(Q, ["w"], LEASE)["w"])
    complete(store, claimed)
    assert told(store) == []
    assert state_of(store, "a") is State.DEAD


def test_one_that_is_handed_over_is_its_workers_no_more_and_goes_on_at_the_new_holder(store, make_job, clock):
    (claimed,) = kill_running(store, make_job("a", limit_key="k", limit=1))
    enqueue(store, make_job("b", limit_key="k", limit=1))
    hand_over(store, claimed)
    assert told(store) == []
    complete(store, *start(store, make_job("c")))
    store.recover(Q, worker="w")
    assert claim(store, worker="other") == []
    assert store.standing(Q, "a").stopping == "remote:a"


def test_the_end_of_another_attempt_is_not_the_end_of_the_killed_one(store, make_job):
    (claimed,) = kill_running(store, make_job("a", limit_key="k", limit=1))
    enqueue(store, make_job("b", limit_key="k", limit=1))
    report(store, claimed, claimed.token + 1)
    report(store, claimed._replace(id="b"), 0)
    assert claim(store, worker="other") == []


def test_one_that_was_not_killed_goes_on(store, make_job):
    (claimed,) = start(store, make_job("a"))
    for token in (claimed.token, 0):
        report(store, claimed, token)
    assert state_of(store, "a") is State.RUNNING


@pytest.mark.parametrize("end", ENDS)
class TestUntilTheAttemptHasEnded:
    def test_it_keeps_its_slot(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", limit_key="k", limit=1))
        enqueue(store, make_job("b", limit_key="k", limit=1))
        assert claim_ids(store, worker="other") == []
        ENDS[end](store, claimed, clock)
        assert claim_ids(store, worker="other") == ["b"]

    def test_the_job_does_not_run_again(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", limit_key="k", limit=1))
        assert store.revive(Q, ["a"]) == ["a"]
        assert state_of(store, "a") is State.BLOCKED
        assert claim(store, worker="other") == []
        store.reconcile(Q)
        assert claim(store, worker="other") == []
        ENDS[end](store, claimed, clock)
        (again,) = claim(store, worker="other")
        assert (again.id, again.failures, again.crashes) == ("a", 0, 0)
        assert again.token > claimed.token
        complete(store, claimed)
        assert state_of(store, "a") is State.RUNNING
        assert complete(store, again) == []

    def test_it_is_not_deleted(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", unique="ab" * 32, unique_mode="running"))
        assert store.delete(Q, ["a"]) == []
        ENDS[end](store, claimed, clock)
        assert store.delete(Q, ["a"]) == ["a"]
        assert store.get(Q, "a") is None

    def test_its_new_arguments_wait_too_and_the_old_limit_is_let_go(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", limit_key="old", limit=1))
        store.revive(Q, ["a"], record=make_job("a", args=b"[[2],{}]", limit_key="new", limit=1).record)
        enqueue(store, make_job("b", limit_key="old", limit=1), make_job("c", limit_key="new", limit=1))
        assert claim_ids(store, 2, worker="other") == ["c"]
        ENDS[end](store, claimed, clock)
        claim(store, 9, worker="other")
        assert (state_of(store, "a"), state_of(store, "b")) == (State.BLOCKED, State.RUNNING)

    def test_it_keeps_its_place_in_the_queue(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a"))
        enqueue(store, make_job("b"))
        assert claim(store, worker="other", max_running=1) == []
        assert store.standing(Q, "b").running == 1
        ENDS[end](store, claimed, clock)
        assert claim_ids(store, worker="other", max_running=1) == ["b"]

    @pytest.mark.parametrize("mode", ["running", "success"])
    def test_it_keeps_its_lock(self, store, make_job, clock, end, mode):
        (claimed,) = kill_running(store, make_job("a", unique=KEY, unique_mode=mode))
        store.reconcile(Q)
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.DUPLICATE]
        ENDS[end](store, claimed, clock)
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.ADDED]

    @pytest.mark.parametrize("change", [True, False])
    def test_its_lock_is_not_freed_by_another_key_of_the_job(self, store, make_job, clock, end, change):
        (claimed,) = kill_running(store, make_job("a", unique=KEY, unique_mode="running"))
        other = make_job("a", args=b"[[2],{}]", unique=OTHER, unique_mode="running").record
        if change:
            was = info(store, "a").record
            store.revive(Q, ["a"])
            assert store.edit(Q, "a", other, was=was) == "edited"
        else:
            store.revive(Q, ["a"], record=other)
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.DUPLICATE]
        assert enqueue(store, make_job("c", unique=OTHER)) == [Added.DUPLICATE]
        ENDS[end](store, claimed, clock)
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.ADDED]
        assert enqueue(store, make_job("c", unique=OTHER)) == [Added.DUPLICATE]

    def test_its_workflow_is_not_told(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", workflow="flow"))
        assert notes_of(store, Q) == []
        assert store.standing(Q, "a").stopping == "w"
        ENDS[end](store, claimed, clock)
        assert [(note.workflow, note.state) for note in notes_of(store, Q)] == [("flow", State.DEAD)]
        assert store.standing(Q, "a").stopping == ""

    @pytest.mark.parametrize("move", ["reschedule", "debounce"])
    def test_the_job_does_not_run_again_if_its_time_is_changed(self, store, make_job, clock, end, move):
        (claimed,) = kill_running(store, make_job("a", unique=KEY, unique_mode="running"))
        store.revive(Q, ["a"])
        if move == "reschedule":
            store.reschedule(Q, ["a"], clock() + 10)
        else:
            later = {"on_conflict": "debounce", "run_at": clock() + 10}
            enqueue(store, make_job("b", unique=KEY, unique_mode="running", **later))
        clock.advance(10)
        assert claim(store, worker="other") == []
        assert state_of(store, "a") is State.BLOCKED
        ENDS[end](store, claimed, clock)
        (again,) = claim(store, worker="other")
        assert again.id == "a"
        assert store.retry(again, FAILED, 0) is State.RETRY

    @pytest.mark.parametrize("verb", ["kill", "cancel"])
    def test_a_key_that_only_the_waiting_job_has_is_freed_when_it_ends(self, store, make_job, clock, end, verb):
        (claimed,) = kill_running(store, make_job("a", unique=KEY, unique_mode="running"))
        store.revive(Q, ["a"], record=make_job("a", args=b"[[2],{}]", unique=OTHER, unique_mode="running").record)
        getattr(store, verb)(Q, ["a"], *(["again"] if verb == "kill" else []))
        assert enqueue(store, make_job("c", unique=OTHER)) == [Added.ADDED]
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.DUPLICATE]
        ENDS[end](store, claimed, clock)
        assert enqueue(store, make_job("b", unique=KEY)) == [Added.ADDED]

    def test_a_job_that_runs_alone_waits_alone(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", alone=True))
        store.revive(Q, ["a"])
        ENDS[end](store, claimed, clock)
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}
        assert [again.id for again in claim_alone(store, worker="other")] == ["a"]


def test_history_keeps_a_job_until_its_attempt_has_ended(make_store, make_job, clock):
    store = make_store(dead_ttl=1)
    (claimed,) = kill_running(store, make_job("a"))
    clock.advance(10)
    assert store.prune(Q)["dead"] == 0
    complete(store, claimed)
    assert store.prune(Q)["dead"] == 1


@pytest.mark.parametrize("verb", ["kill", "cancel"])
def test_the_workflow_of_a_job_that_ends_before_its_attempt_is_told_of_one_end(store, make_job, verb):
    (claimed,) = kill_running(store, make_job("a", workflow="flow"))
    store.revive(Q, ["a"])
    getattr(store, verb)(Q, ["a"], *(["again"] if verb == "kill" else []))
    assert notes_of(store, Q) == []
    complete(store, claimed)
    assert [note.state for note in notes_of(store, Q)] == [State.DEAD if verb == "kill" else State.CANCELLED]


def test_the_workflow_of_a_job_that_runs_again_after_its_attempt_is_told_of_no_end(store, make_job):
    (claimed,) = kill_running(store, make_job("a", workflow="flow"))
    store.revive(Q, ["a"])
    complete(store, claimed)
    assert notes_of(store, Q) == []


def test_of_a_holder_that_is_gone_nothing_is_waited_for(store, make_job, clock):
    start(store, make_job("a", limit_key="k", limit=1))
    clock.advance(LEASE)
    store.kill(Q, ["a"], "by hand")
    store.revive(Q, ["a"])
    store.recover(Q)
    assert claim_ids(store, worker="other") == ["a"]


def test_a_step_of_the_clock_frees_nothing_of_a_killed_attempt(store, make_job, clock):
    """Its worker has not renewed its lease by the new time yet; the process may still run the function."""
    (claimed,) = kill_running(store, make_job("a", limit_key="k", limit=1))
    enqueue(store, make_job("b", limit_key="k", limit=1))
    store.lapsed([Q])
    clock.advance(2 * LEASE)
    store.reconcile(Q)
    assert store.recover(Q, spare=LEASE) == []
    assert claim_ids(store, worker="other") == []
    assert told(store) == [("a", claimed.token)]
    complete(store, claimed)
    assert claim_ids(store, worker="other") == ["b"]


def test_a_remote_job_that_was_killed_is_waited_for_until_its_lease_ends(store, make_job, clock):
    enqueue(store, make_job("a", limit_key="k", limit=1))
    store.claim(Q, "remote", 1, lease=LEASE, lease_each=True)
    store.kill(Q, ["a"], "by hand")
    store.revive(Q, ["a"])
    assert claim(store) == []
    clock.advance(LEASE)
    assert store.overdue(Q) == []
    assert claim_ids(store) == ["a"]


def test_a_revived_job_may_be_killed_cancelled_and_revived_while_it_waits_for_its_end(store, make_job):
    (claimed,) = kill_running(store, make_job("a"))
    store.revive(Q, ["a"])
    store.kill(Q, ["a"], "once more")
    assert state_of(store, "a") is State.DEAD
    store.revive(Q, ["a"])
    store.cancel(Q, ["a"])
    assert state_of(store, "a") is State.CANCELLED
    complete(store, claimed)
    assert state_of(store, "a") is State.CANCELLED
    store.revive(Q, ["a"])
    assert claim_ids(store) == ["a"]


def test_others_of_the_worker_are_handed_back_uncharged(store, make_job):
    first, _ = start(store, make_job("a"), make_job("b"))
    store.kill(Q, ["a"], "by hand")
    assert [moved.id for moved in store.release_worker(Q, first.worker)] == ["b"]
    assert (info(store, "b").crashes, info(store, "b").state) == (0, State.QUEUED)


def test_a_worker_that_renews_late_is_told_of_a_killed_attempt_by_every_call(store, make_job, clock):
    """The first answer may be lost, and then the second is the one that ends the process."""
    start(store, make_job("a"))
    store.kill(Q, ["a"], reason="hangs")
    clock.advance(LEASE)
    asked = [store.extend(Q, ["w"], LEASE) for _ in range(2)]
    assert asked[0] == asked[1]
    assert list(asked[0]["w"]) == ["a"]


def test_a_killed_job_may_be_cancelled_instead_of_dead(store, make_job):
    """What follows is the same: it keeps what it holds until its attempt has ended, and then its workflow is told."""
    job = make_job("a", workflow="flow", unique=KEY, unique_mode="running", limit_key="k", limit=1)
    (claimed,) = kill_running(store, job, state=State.CANCELLED)
    assert state_of(store, "a") is State.CANCELLED
    assert notes_of(store, Q) == []
    assert enqueue(store, make_job("b", unique=KEY, unique_mode="running")) == [Added.DUPLICATE]
    enqueue(store, make_job("c", limit_key="k", limit=1))
    assert claim_ids(store) == []
    complete(store, claimed)
    assert [note.state for note in notes_of(store, Q)] == [State.CANCELLED]
    assert claim_ids(store) == ["c"]
    assert enqueue(store, make_job("b", unique=KEY, unique_mode="running")) == [Added.ADDED]


def test_a_waiting_job_may_be_killed_as_cancelled(store, make_job):
    enqueue(store, make_job("a"))
    assert store.kill(Q, ["a"], "by hand", State.CANCELLED) == ["a"]
    assert (state_of(store, "a"), info(store, "a").attempts[-1].outcome) == (State.CANCELLED, "killed")
