"""kill: a person ends a job, and with it the process that runs it; until that has ended it has not."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Killed, Lane, State
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
    start,
    state_of,
)

#: how a killed attempt ends → what says so to the store
ENDS = {
    "its worker settles it": lambda store, claimed, clock: complete(store, claimed),
    "its worker says that it failed": lambda store, claimed, clock: store.retry(claimed, FAILED, 0),
    "its worker hands it back": lambda store, claimed, clock: store.release(Q, [claimed]),
    "its process was ended": lambda store, claimed, clock: store.release_worker(Q, "w"),
    "its process died": lambda store, claimed, clock: store.recover(Q, worker="w"),
    "its lease ended": lambda store, claimed, clock: (clock.advance(LEASE), store.extend(Q, ["other"], LEASE)),
}


def kill_running(store, *jobs):
    """The claims of these, which were killed while they ran."""
    claims = start(store, *jobs)
    assert store.kill(Q, [claimed.id for claimed in claims], "by hand") == [claimed.id for claimed in claims]
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

    def test_a_job_that_runs_alone_waits_alone(self, store, make_job, clock, end):
        (claimed,) = kill_running(store, make_job("a", alone=True))
        store.revive(Q, ["a"])
        ENDS[end](store, claimed, clock)
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}
        assert [again.id for again in claim_alone(store, worker="other")] == ["a"]


def test_of_a_holder_that_is_gone_nothing_is_waited_for(store, make_job, clock):
    start(store, make_job("a", limit_key="k", limit=1))
    clock.advance(LEASE)
    store.kill(Q, ["a"], "by hand")
    store.revive(Q, ["a"])
    assert claim_ids(store, worker="other") == ["a"]


def test_a_remote_job_that_was_killed_is_waited_for_until_its_lease_ends(store, make_job, clock):
    enqueue(store, make_job("a", limit_key="k", limit=1))
    store.claim(Q, "remote", 1, lease=LEASE, lease_each=True)
    store.kill(Q, ["a"], "by hand")
    store.revive(Q, ["a"])
    assert claim(store) == []
    clock.advance(LEASE)
    store.extend(Q, ["w"], LEASE)
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
