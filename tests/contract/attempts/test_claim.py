"""What `claim`, `extend`, `transfer`, `backlog` and `anything` promise."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Completed, Completion, Lane, State
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
    totals,
)


class TestAClaim:
    def test_takes_at_most_what_was_asked_for_and_tells_what_is_left(self, store, make_job):
        enqueue(store, *[make_job() for _ in range(5)])
        answer = store.claim(Q, "w", 3, lease=LEASE)
        assert len(answer.claims) == 3
        assert answer.left == 2

    def test_of_an_empty_queue_is_empty(self, store, clock):
        answer = store.claim(Q, "w", 10, lease=LEASE)
        assert answer.claims == []
        assert answer.expired == []
        assert answer.left == 0
        assert answer.next_due is None
        assert answer.now == clock.now

    def test_first_ends_the_attempts_that_it_is_given(self, store, make_job):
        enqueue(store, make_job("a"), make_job("b"), make_job("c"))
        held = claim(store, 2)
        store.release(Q, held[1:])
        store.enqueue("other", [make_job("d")])
        completion = Completion(Q, [Completed(each, b"1") for each in held])
        answer = store.claim(Q, "w", 1, lease=LEASE, max_running=1, completion=completion)
        assert completion.stale == ["b"]
        assert [each.id for each in answer.claims] == ["b"], "and the place that they leave is free"
        completion = Completion(Q, [Completed(answer.claims[0], b"1")])
        assert [each.id for each in store.claim("other", "w", 1, lease=LEASE, completion=completion).claims] == ["d"]
        assert completion.stale == []
        assert (state_of(store, "a"), state_of(store, "b")) == (State.SUCCEEDED, State.SUCCEEDED)
        assert info(store, "a").result == b"1"

    def test_that_gets_nothing_ends_them_too(self, store, make_job):
        enqueue(store, make_job("a"))
        completion = Completion(Q, [Completed(each) for each in claim(store, 1)])
        assert store.claim(Q, "w", 1, lease=LEASE, completion=completion).claims == []
        assert completion.stale == []
        assert state_of(store, "a") is State.SUCCEEDED

    def test_takes_the_best_priority_first_and_the_oldest_among_equals(self, store, make_job):
        for id, priority in [("n1", 0), ("low", -100), ("n2", 0), ("high", 100), ("n3", 0), ("mid", 5)]:
            enqueue(store, make_job(id, priority=priority))
        assert claim_ids(store, 10) == ["high", "mid", "n1", "n2", "n3", "low"]

    def test_takes_from_one_lane_only(self, store, make_job):
        enqueue(store, make_job("s"), make_job("a", alone=True))
        assert claim_ids(store, 10) == ["s"]
        assert [c.id for c in claim_alone(store, 10)] == ["a"]

    def test_counts_what_is_left_in_its_lane(self, store, make_job):
        enqueue(store, make_job("s"), make_job("a", alone=True))
        assert store.claim(Q, "w", 1, lease=LEASE).left == 0

    def test_after_a_release_has_a_greater_token_for_the_same_job(self, store, make_job):
        (first,) = start(store, make_job("a"))
        store.release(Q, [first])
        assert claim(store)[0].token > first.token

    def test_counts_earlier_failures_into_the_attempt(self, store, make_job, clock):
        (first,) = start(store, make_job("a"))
        store.retry(first, FAILED, 0)
        second = claim(store)[0]
        assert (second.failures, second.crashes, second.attempt) == (1, 0, 2)

    def test_tells_when_the_next_job_is_due(self, store, make_job, clock):
        enqueue(store, make_job(run_at=clock.now + 5000), make_job(run_at=clock.now + 3000))
        clock.advance(1000)
        assert store.claim(Q, "w", 1, lease=LEASE).next_due == 2000


class TestTheLaneAlone:
    def test_gives_jobs_with_a_time_limit_together(self, store, make_job):
        enqueue(store, *[make_job(f"{n:02}", alone=True) for n in range(40)])
        assert [c.id for c in claim_alone(store, 30)] == [f"{n:02}" for n in range(30)]
        assert [c.id for c in claim_alone(store, 30)] == [f"{n:02}" for n in range(30, 40)]

    @pytest.mark.parametrize("lane", [Lane.ALONE, Lane.CLEAR])
    def test_gives_an_at_most_once_job_by_itself(self, store, make_job, lane):
        """Its process may die, and then each of its jobs counts as started."""
        kinds = "lloolllolo"
        for n, kind in enumerate(kinds):
            enqueue(store, make_job(f"{kind}{n}", alone=kind == "l", at_most_once=kind == "o"))
        batches = [[c.id for c in claim(store, 20, lane=lane)] for _ in range(8)]
        assert batches == [["l0", "l1"], ["o2"], ["o3"], ["l4", "l5", "l6"], ["o7"], ["l8"], ["o9"], []]

    def test_gives_a_job_that_crashed_by_itself(self, store, make_job):
        """It may have been the reason, and do it again."""
        start(store, make_job("x"), worker="dead")
        store.recover(Q, worker="dead")
        enqueue(store, *[make_job(id, alone=True) for id in "ab"])
        assert [[c.id for c in claim_alone(store, 9)] for _ in range(2)] == [["x"], ["a", "b"]]

    def test_passes_over_what_may_not_run_and_stays_by_itself(self, store, make_job, clock):
        enqueue(store, make_job("late", at_most_once=True, expires_at=clock.now + 5))
        enqueue(store, make_job("next", at_most_once=True), make_job("last", alone=True))
        clock.advance(10)
        claimed = store.claim(Q, "w", 9, lane=Lane.ALONE, lease=LEASE)
        assert ([c.id for c in claimed.claims], [e.id for e in claimed.expired]) == (["next"], ["late"])

    def test_gives_each_job_its_own_holder_where_the_caller_asks_for_it(self, store, make_job):
        enqueue(store, *[make_job(id, at_most_once=True) for id in "ab"])
        assert [c.id for c in claim_alone(store, 9, lease_each=True)] == ["a", "b"]


class TestAnExpiredJob:
    @pytest.mark.accepts("K11")
    def test_is_not_run_but_reported(self, store, make_job, clock):
        job = make_job("a", expires_at=clock.now + 1000)
        enqueue(store, job, make_job("b"))
        clock.advance(1000)
        answer = store.claim(Q, "w", 1, lease=LEASE)
        assert [(id, record) for id, record, _ in answer.expired] == [("a", job.record)]
        assert [c.id for c in answer.claims] == ["b"]
        assert info(store, "a").state is State.EXPIRED
        assert info(store, "a").at == clock.now
        assert totals(store)["expired"] == 1

    def test_runs_until_the_moment_before(self, store, make_job, clock):
        enqueue(store, make_job("a", expires_at=clock.now + 1))
        assert claim_ids(store) == ["a"]


class TestTheBoundOnRunningJobs:
    @pytest.mark.accepts("G11")
    def test_holds_for_the_whole_queue(self, store, make_job):
        enqueue(store, *[make_job() for _ in range(5)])
        assert len(claim(store, 5, "w1", max_running=2)) == 2
        assert claim(store, 5, "w2", max_running=2) == []
        assert len(claim(store, 5, "w2", max_running=3)) == 1

    def test_counts_both_lanes(self, store, make_job):
        enqueue(store, make_job(), make_job(alone=True))
        assert len(claim(store, 5, max_running=1)) == 1
        assert claim_alone(store, 5, max_running=1) == []

    def test_has_room_again_when_one_ends(self, store, make_job):
        enqueue(store, *[make_job() for _ in range(2)])
        complete(store, *claim(store, 2, max_running=1))
        assert len(claim(store, 2, max_running=1)) == 1


class TestALease:
    def test_is_extended_for_all_jobs_of_the_worker(self, store, make_job, clock):
        start(store, make_job("a"), make_job("b"))
        clock.advance(LEASE - 1)
        assert store.extend(Q, ["w"], LEASE) == {"w": []}
        clock.advance(LEASE - 1)
        assert store.recover(Q) == []
        clock.advance(1)
        assert sorted(r.id for r in store.recover(Q)) == ["a", "b"]

    def test_that_was_taken_away_cannot_be_extended(self, store, make_job, clock):
        start(store, make_job("a"))
        clock.advance(LEASE)
        store.recover(Q)
        assert dict(store.extend(Q, ["w"], LEASE)) == {}

    def test_that_nobody_has_taken_yet_can_be_extended_late(self, store, make_job, clock):
        start(store, make_job("a"))
        clock.advance(LEASE * 2)
        assert list(store.extend(Q, ["w"], LEASE)) == ["w"]
        assert store.recover(Q) == []

    def test_is_extended_for_several_workers_in_one_call(self, store, make_job):
        enqueue(store, make_job(), make_job())
        claim(store, worker="w1")
        claim(store, worker="w2")
        assert set(store.extend(Q, ["w1", "w2", "w3"], LEASE)) == {"w1", "w2"}

    def test_is_each_jobs_own_where_asked_for(self, store, make_job, clock):
        enqueue(store, make_job("a"), make_job("b"))
        claims = claim(store, 2, "remote", lease_each=True)
        assert [c.worker for c in claims] == ["remote:a", "remote:b"]
        clock.advance(LEASE - 1)
        assert list(store.extend(Q, ["remote:a"], LEASE)) == ["remote:a"]
        clock.advance(1)
        assert [c.id for c in store.overdue(Q)] == ["b"]


class TestTransfer:
    def test_gives_the_claim_to_another_holder_with_its_own_lease(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        assert store.transfer(claimed, "remote:a", 300_000)
        assert info(store, "a").worker == "remote:a"
        assert info(store, "a").token == claimed.token
        clock.advance(LEASE)
        assert store.recover(Q) == []
        clock.advance(300_000 - LEASE)
        assert [c.id for c in store.overdue(Q)] == ["a"]

    def test_leaves_the_other_jobs_of_the_worker_where_they_are(self, store, make_job):
        first, _ = start(store, make_job("a"), make_job("b"))
        store.transfer(first, "remote:a", 300_000)
        assert [r.id for r in store.recover(Q, worker="w")] == ["b"]

    def test_leaves_a_longer_lease_that_the_new_holder_has_got_already(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        assert store.transfer(claimed, "remote:a", 300_000)
        assert store.transfer(claimed, "remote:a", 100_000)
        clock.advance(299_999)
        assert store.overdue(Q) == []
        assert store.transfer(claimed, "remote:a", 100_000)
        clock.advance(99_999)
        assert store.overdue(Q) == []
        clock.advance(1)
        assert [c.id for c in store.overdue(Q)] == ["a"]

    def test_tells_the_new_holder_that_the_job_was_asked_to_stop(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.cancel(Q, ["a"])
        store.transfer(claimed, "remote:a", 300_000)
        told = store.extend(Q, ["w", "remote:a"], LEASE)
        assert {holder: list(ids) for holder, ids in told.items()} == {"w": [], "remote:a": ["a"]}


class TestLookingWhetherThereIsWork:
    def test_counts_queued_jobs_per_lane_and_queue(self, store, make_job, clock):
        enqueue(store, make_job(), make_job(), make_job(alone=True), make_job(run_at=clock.now + 9))
        store.enqueue("b", [make_job()])
        assert store.backlog([Q, "b", "c"]) == {Q: 2, "b": 1, "c": 0}
        assert store.backlog([Q, "b"], lane=Lane.ALONE) == {Q: 1, "b": 0}
