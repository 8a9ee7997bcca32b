"""Limits on how many jobs of one key run at once."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Lane, State
from tests.contract.acts import FAILED, Q, claim, claim_ids, complete, counts, enqueue, ids_in, start, state_of


@pytest.fixture
def limited(make_job):
    """A job of which one may run at a time."""

    def make(id, limit=1, key="k", **given):
        return make_job(id, limit_key=key, limit=limit, **given)

    return make


class TestAJobOverItsLimit:
    @pytest.mark.accepts("G38", "G49")
    def test_is_blocked_and_passed_over(self, store, limited, make_job):
        enqueue(store, limited("a"), limited("b"), make_job("c"))
        assert claim_ids(store, 3) == ["a", "c"]
        assert state_of(store, "b") is State.BLOCKED
        assert counts(store) == {"running": 2, "blocked": 1}

    def test_is_blocked_whoever_claims(self, store, limited):
        enqueue(store, limited("a"), limited("b"))
        claim(store, worker="w1")
        assert claim(store, worker="w2") == []

    def test_does_not_hold_up_the_jobs_behind_it(self, store, limited, make_job):
        enqueue(store, *[limited(f"k{n}") for n in range(8)], make_job("free"))
        assert claim_ids(store, 2) == ["k0", "free"]

    def test_is_another_in_another_queue(self, store, limited):
        start(store, limited("a"))
        store.enqueue("other", [limited("b")])
        assert [c.id for c in store.claim("other", "w", 1, lease=1000).claims] == ["b"]

    def test_is_none_with_another_key(self, store, limited):
        enqueue(store, limited("a", key="x"), limited("b", key="x2"))
        assert claim_ids(store, 2) == ["a", "b"]

    def test_counts_both_lanes(self, store, limited):
        start(store, limited("a"), limited("b", alone=True))
        assert counts(store) == {"running": 1, "blocked": 1}


class TestASlotThatFrees:
    @pytest.mark.accepts("G40")
    @pytest.mark.parametrize(
        "how", ["complete", "retry", "snooze", "bury", "discard", "kill", "recover", "release_worker"]
    )
    def test_lets_a_blocked_job_in_however_the_attempt_ended(self, store, limited, how):
        enqueue(store, limited("a"), limited("b"))
        (claimed,) = claim(store, 2)
        {
            "complete": lambda: complete(store, claimed),
            "retry": lambda: store.retry(claimed, FAILED, 1000),
            "snooze": lambda: store.snooze(claimed, 1000),
            "bury": lambda: store.bury(claimed, FAILED),
            "discard": lambda: store.discard(claimed, FAILED),
            "kill": lambda: (store.kill(Q, ["a"], "reason"), complete(store, claimed)),
            "recover": lambda: store.recover(Q, worker="w"),
            "release_worker": lambda: store.release_worker(Q, "w"),
        }[how]()
        assert state_of(store, "b") is State.QUEUED
        store.cancel(Q, ["a"])
        assert claim_ids(store, 2) == ["b"]

    def test_lets_the_best_priority_in_first_and_the_oldest_among_equals(self, store, limited):
        enqueue(store, limited("first", priority=100), limited("a"), limited("b"), limited("c", priority=1))
        (claimed,) = claim(store, 9)
        order = []
        for _ in range(3):
            complete(store, claimed)
            (claimed,) = claim(store, 9)
            order.append(claimed.id)
        assert order == ["c", "a", "b"]

    def test_puts_the_job_back_where_it_was_in_the_line(self, store, limited, make_job):
        enqueue(store, limited("a"), limited("b"))
        (claimed,) = claim(store, 2)
        enqueue(store, make_job("later"))
        complete(store, claimed)
        assert claim_ids(store, 2) == ["b", "later"]

    def test_never_lets_more_run_than_the_limit(self, store, limited):
        enqueue(store, *[limited(str(n), limit=2) for n in range(6)])
        running = claim(store, 9)
        while running:
            assert len(running) <= 2
            complete(store, running.pop())
            running += claim(store, 9)
        assert counts(store) == {"succeeded": 6}

    def test_goes_on_to_the_next_when_the_one_let_in_is_put_away(self, store, limited):
        enqueue(store, limited("a"), limited("b"), limited("c"))
        (claimed,) = claim(store, 9)
        complete(store, claimed)
        store.delete(Q, ["b"])
        store.reconcile(Q)
        assert claim_ids(store, 9) == ["c"]


class TestALimitThatHasGrown:
    """However many jobs it has room for now, no call takes the server's time for all of them."""

    MANY, AT_ONCE = 1200, 1000

    @pytest.fixture
    def blocked(self, store, limited):
        enqueue(store, *[limited(f"{n:04}") for n in range(self.MANY // 2)])
        enqueue(store, *[limited(f"{n:04}") for n in range(self.MANY // 2, self.MANY)])
        assert [claim_ids(store, 1000) for _ in range(3)] == [["0000"], [], []]
        return [f"{n:04}" for n in range(1, self.MANY)]

    @pytest.mark.parametrize("most", [5000, 0])
    def test_lets_in_some_at_each_check(self, store, blocked, most):
        for left in (699, 199, 0):
            store.let_in(Q, f"\ntests.job {most}\n")
            assert counts(store).get("blocked", 0) == left

    def test_lets_in_some_at_each_claim(self, store, limited, blocked):
        enqueue(store, limited("last"))
        got = []
        while ids := claim_ids(store, 300, limits="\ntests.job 5000\n"):
            assert self.MANY - counts(store).get("blocked", 0) <= len(got) + self.AT_ONCE + 1
            got += ids
        assert sorted(got) == [*blocked, "last"]


class TestABlockedJob:
    @pytest.mark.parametrize(
        ("verb", "state"),
        [("cancel", State.CANCELLED), ("kill", State.DEAD), ("delete", None), ("revive", State.QUEUED)],
    )
    def test_can_be_moved_by_hand(self, store, limited, verb, state):
        enqueue(store, limited("a"), limited("b"))
        claim(store, 2)
        getattr(store, verb)(Q, ["b"], *(["reason"] if verb == "kill" else []))
        assert state_of(store, "b") is state
        assert ids_in(store, State.BLOCKED) == []


class TestManyBlockedJobs:
    def test_are_put_away_by_the_hundred_whatever_the_size_of_a_claim(self, store, limited, make_job):
        for _ in range(3):
            enqueue(store, *[limited(None) for _ in range(1000)])
        enqueue(store, make_job("free"))
        calls = 0
        while "free" not in (ids := claim_ids(store, 1)) and calls < 20:
            calls += 1
        assert "free" in ids
        assert counts(store) == {"running": 2, "blocked": 2999}


class TestAQueueWithALimit:
    @pytest.mark.accepts("G38")
    def test_never_runs_more_and_tells_what_is_left(self, store, make_job):
        enqueue(store, *[make_job() for _ in range(5)], make_job("alone", alone=True))
        first = store.claim(Q, "w1", 9, lease=1000, max_running=3)
        second = store.claim(Q, "w2", 9, lease=1000, max_running=3)
        other_lane = store.claim(Q, "w3", 9, lane=Lane.ALONE, lease=1000, max_running=3)
        assert [len(answer.claims) for answer in (first, second, other_lane)] == [3, 0, 0]
        assert (second.left, other_lane.left) == (2, 1)

    @pytest.mark.parametrize("how", ["complete", "bury", "discard", "kill", "retry", "snooze", "recover"])
    def test_wakes_somebody_when_a_job_has_ended(self, store, make_job, how):
        enqueue(store, make_job("a"), make_job("b"))
        (claimed,) = store.claim(Q, "w", 9, lease=1000, max_running=1).claims
        while store.wait_for_work([Q], 0.01) is not None:
            pass
        {
            "complete": lambda: complete(store, claimed),
            "bury": lambda: store.bury(claimed, FAILED),
            "discard": lambda: store.discard(claimed, FAILED),
            "kill": lambda: (store.kill(Q, ["a"], "reason"), complete(store, claimed)),
            "retry": lambda: store.retry(claimed, FAILED, 60_000),
            "snooze": lambda: store.snooze(claimed, 60_000),
            "recover": lambda: store.recover(Q, worker="w"),
        }[how]()
        assert store.wait_for_work([Q], 0.01) is not None
        assert len(store.claim(Q, "w", 9, lease=1000, max_running=1).claims) == 1

    def test_at_its_limit_does_not_wake_others_for_nothing(self, store, make_job):
        enqueue(store, make_job("a"), make_job("b"))
        store.claim(Q, "w", 9, lease=1000, max_running=1)
        while store.wait_for_work([Q], 0.3) is not None:
            pass
        store.claim(Q, "w", 9, lease=1000, max_running=1)
        assert store.wait_for_work([Q], 0.01) is None
