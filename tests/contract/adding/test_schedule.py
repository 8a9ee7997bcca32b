"""Jobs with a time: promotion, and waiting for work."""

from __future__ import annotations

import threading
import time

import pytest

from django_jobs.core.values import Lane, State
from tests.contract.acts import FAILED, Q, claim_ids, complete, enqueue, ids_in, info, start, state_of

#: Seconds within which a waiter must have been told; the machine may be busy.
SOON = 60.0


class TestPromote:
    @pytest.mark.accepts("G57")
    def test_moves_what_is_due_to_queued(self, store, make_job, clock):
        enqueue(store, make_job("a", run_at=clock.now + 1000), make_job("b", run_at=clock.now + 1001))
        assert store.promote(Q) == 0
        clock.advance(1000)
        assert store.promote(Q) == 1
        assert (state_of(store, "a"), state_of(store, "b")) == (State.QUEUED, State.SCHEDULED)
        assert info(store, "a").at == 0

    @pytest.mark.accepts("G56")
    def test_moves_the_earliest_first(self, store, make_job, clock):
        enqueue(store, *[make_job(str(n), run_at=clock.now + n) for n in (30, 10, 20)])
        clock.advance(30)
        assert store.promote(Q, 2) == 2
        assert claim_ids(store, 2) == ["10", "20"]

    def test_moves_at_most_as_many_as_asked_for(self, store, make_job, clock):
        enqueue(store, *[make_job(run_at=clock.now + 1) for _ in range(5)])
        clock.advance(1)
        assert [store.promote(Q, 2) for _ in range(4)] == [2, 2, 1, 0]

    def test_counts_retries_and_scheduled_jobs_together(self, store, make_job, clock):
        for claimed in start(store, make_job("a"), make_job("b")):
            store.retry(claimed, FAILED, 1)
        enqueue(store, *[make_job(run_at=clock.now + 1) for _ in range(3)])
        clock.advance(1)
        assert [store.promote(Q, 3) for _ in range(3)] == [3, 2, 0]

    def test_keeps_priority_and_lane(self, store, make_job, clock):
        enqueue(
            store,
            make_job("low", run_at=clock.now + 1),
            make_job("high", run_at=clock.now + 2, priority=9),
            make_job("alone", run_at=clock.now + 1, alone=True),
        )
        clock.advance(2)
        assert store.promote(Q) == 3
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}
        assert claim_ids(store, 2) == ["high", "low"]

    def test_works_through_more_than_one_claims_share(self, store, make_job, clock):
        enqueue(store, *[make_job(run_at=clock.now + 1) for _ in range(250)])
        clock.advance(1)
        taken = 0
        for _ in range(3):
            taken += len(claim_ids(store, 500))
        assert taken == 250
        assert ids_in(store, State.SCHEDULED) == []


class TestWaitingForWork:
    def test_ends_without_any_after_the_timeout(self, store):
        begin = time.monotonic()
        assert store.wait_for_work([Q], 0.05) is None
        assert time.monotonic() - begin >= 0.05

    @pytest.mark.accepts("R11")
    def test_ends_when_a_job_is_enqueued_to_any_of_the_queues(self, make_store, make_job):
        store = make_store()
        told = _in_thread(lambda: store.wait_for_work(["other", Q], SOON))
        store.enqueue("other", [make_job()])
        assert told() in ("", "other")

    @pytest.mark.accepts("P12")
    @pytest.mark.parametrize("jobs", [[{}], [{}, {}], [{}, {"unique": "d" * 32}]], ids=["one", "some", "with controls"])
    def test_ends_when_a_new_job_is_there_to_be_claimed(self, store, make_job, jobs):
        def next_ones():
            assert store.wait_for_work([Q], 10.0) is not None
            return claim_ids(store, 2)

        for _ in range(10):
            while store.wait_for_work([Q], 0.01) is not None:
                """What was told before is not what is tested."""
            told, new = _in_thread(next_ones), [make_job(**job) for job in jobs]
            enqueue(store, *new)
            assert told() == [job.id for job in new]

    def test_ends_when_a_blocked_job_may_run(self, store, make_job):
        enqueue(store, *[make_job(i, limit_key="k", limit=1) for i in "ab"])
        claims = start(store)
        claims = store.claim(Q, "w", 2, lease=30_000).claims
        told = _in_thread(
            lambda: _until(lambda: store.wait_for_work([Q], 1.0) is not None and store.outlook([Q])[Q].left)
        )
        complete(store, *claims)
        assert told() is True

    @pytest.mark.parametrize("how", ["unique", "release", "release_worker", "recover", "revive", "promote"])
    def test_ends_however_a_job_comes_into_its_queue(self, store, make_job, clock, how):
        match how:
            case "promote":
                enqueue(store, make_job("a", run_at=clock.now + 10))
            case "revive":
                enqueue(store, make_job("a"))
                store.cancel(Q, ["a"])
            case "release" | "release_worker" | "recover":
                claims = start(store, make_job("a"))
        lane = Lane.ALONE if how == "recover" else Lane.SHARED  # its process crashed, so it runs alone
        while store.wait_for_work([Q], 0.05, lane=lane) is not None:
            """What was told before is not what is tested."""
        match how:
            case "unique":
                enqueue(store, make_job("a", unique="d" * 32))
            case "release":
                store.release(Q, claims)
            case "release_worker":
                store.release_worker(Q, "w")
            case "recover":
                store.recover(Q, worker="w")
            case "revive":
                store.revive(Q, ["a"])
            case "promote":
                clock.advance(10)
                store.promote(Q)
        assert state_of(store, "a") is State.QUEUED
        assert store.wait_for_work([Q], SOON, lane=lane) in ("", Q)

    @pytest.mark.parametrize("lane", [Lane.SHARED, Lane.ALONE])
    def test_ends_when_who_takes_a_job_learns_of_one_that_is_due_soon(self, store, make_job, clock, lane):
        """It may be busy, or dead, when the other is due."""
        alone = lane is Lane.ALONE
        enqueue(store, make_job("now", alone=alone), make_job("soon", run_at=clock.now + 1000, alone=alone))
        while store.wait_for_work([Q], 0.05, lane=lane) is not None:
            """What was told before is not what is tested."""
        assert claim_ids(store, 2, lane=lane) == ["now"]
        assert store.wait_for_work([Q], SOON, lane=lane) in ("", Q)

    @pytest.mark.accepts("R11")
    def test_of_one_lane_ends_for_a_job_of_that_lane(self, store, make_job):
        told = _in_thread(lambda: store.wait_for_work([Q], SOON, lane=Lane.ALONE))
        enqueue(store, make_job(alone=True))
        assert told() in ("", Q)


def _until(ask):
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        if ask():
            return True
    return False


def _in_thread(call):
    """Start it; the function returned waits for its answer."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()

    def answer():
        thread.join(SOON)
        assert answers, "it still waits"
        return answers[0]

    return answer
