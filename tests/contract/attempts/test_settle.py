"""What ends an attempt: complete, retry, snooze, bury, release, checkin.  For many at once, see test_settle_many.py."""

from __future__ import annotations

import json

import pytest

from django_jobs.core.values import Lane, Recovered, State
from tests.contract.acts import (
    FAILED,
    LEASE,
    Q,
    claim,
    claim_ids,
    complete,
    counts,
    done,
    enqueue,
    info,
    start,
    state_of,
    totals,
)


class TestComplete:
    @pytest.mark.accepts("G52")
    def test_moves_running_to_succeeded(self, store, make_job, clock):
        claims = start(store, make_job("a"), make_job("b"))
        clock.advance(7)
        assert complete(store, *claims, result=b'{"n": 1}', run_ms=7) == []
        found = info(store, "a")
        assert (found.state, found.at, found.result, found.run_ms) == (State.SUCCEEDED, clock.now, b'{"n": 1}', 7)
        assert (found.token, found.worker, found.checkin) == (0, "", None)
        assert counts(store) == {"succeeded": 2}

    def test_keeps_that_the_result_was_none(self, make_store, make_job):
        store = make_store(archive=True)
        complete(store, *start(store, make_job("a")), result=b"", run_ms=0)
        complete(store, *start(store, make_job("b")), result=b"null", run_ms=0)
        archived = [job for _, job in store.archive_batch(Q)]
        for shown in (store.page(Q, State.SUCCEEDED), store.get_many(Q, ["a", "b"]), archived):
            assert [job.result for job in shown] == [b"null", b"null"]
        assert info(store, "a").result == b"null"

    def test_alone_leaves_a_result(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.bury(claimed, FAILED)
        assert info(store, "a").result is None

    def test_of_nothing_is_nothing(self, store):
        assert store.complete(Q, []) == []

    def test_is_counted_by_name_and_minute(self, store, make_job, clock):
        claims = start(store, make_job(name="n1"), make_job(name="n1"), make_job(name="n2"))
        complete(store, *claims, run_ms=10, wait_ms=4)
        counted = totals(store)
        assert (counted["succeeded"], counted["succeeded:n1"], counted["succeeded:n2"]) == (3, 2, 1)
        minute = store.sums([Q], clock.now - 60_000)[clock.now - clock.now % 60_000]
        assert (minute["succeeded"], minute["run_ms"], minute["wait_ms"]) == (3, 30, 12)

    def test_succeeds_though_the_job_was_asked_to_stop(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.cancel(Q, ["a"])
        assert complete(store, claimed) == []
        assert state_of(store, "a") is State.SUCCEEDED

    def test_takes_a_thousand_and_no_more(self, store, make_job):
        claims = start(store, *[make_job() for _ in range(1000)])
        with pytest.raises(ValueError, match="1000"):
            store.complete(Q, [done(claims[0])] * 1001)
        assert complete(store, *claims) == []
        assert counts(store) == {"succeeded": 1000}


class TestRetry:
    @pytest.mark.accepts("G53", "P06")
    def test_moves_running_to_retry_and_counts_the_failure(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        assert store.retry(claimed, FAILED, 5000) is State.RETRY
        found = info(store, "a")
        assert (found.state, found.at, found.failures, found.token) == (State.RETRY, clock.now + 5000, 1, 0)

    def test_logs_the_attempt_as_it_was_told_with_the_stores_time(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        clock.advance(3)
        store.retry(claimed, FAILED, 5000)
        assert info(store, "a").attempts == (FAILED._replace(at=clock.now),)

    def test_comes_back_when_it_is_due(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        store.retry(claimed, FAILED, 5000)
        clock.advance(4999)
        assert claim(store) == []
        clock.advance(1)
        assert claim_ids(store) == ["a"]


class TestSnooze:
    def test_moves_running_to_scheduled_and_is_no_failure(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        assert store.snooze(claimed, 5000) is State.SCHEDULED
        found = info(store, "a")
        assert (found.state, found.at, found.failures, found.attempts) == (State.SCHEDULED, clock.now + 5000, 0, ())
        clock.advance(5000)
        assert claim(store)[0].attempt == 1


class TestBury:
    @pytest.mark.accepts("G53")
    def test_moves_running_to_dead_and_counts_the_failure(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a", name="n"))
        assert store.bury(claimed, FAILED)
        found = info(store, "a")
        assert (found.state, found.at, found.failures) == (State.DEAD, clock.now, 1)
        assert found.attempts[-1].error_type == "ValueError"
        counted = totals(store)
        assert [counted[e] for e in ("failed", "dead", "dead:n")] == [1, 1, 1]


class TestRelease:
    def test_moves_running_to_queued_uncounted(self, store, make_job):
        claims = start(store, make_job("a"), make_job("b"))
        assert store.release(Q, claims) == []
        assert counts(store) == {"queued": 2}
        again = claim(store, 2)
        assert sorted(c.id for c in again) == ["a", "b"]
        assert {c.attempt for c in again} == {1}

    @pytest.mark.parametrize("priority", [-100, 0, 100])
    def test_keeps_the_order_in_which_they_were_claimed(self, store, make_job, priority):
        claims = start(store, *[make_job(id, priority=priority) for id in "cbda"])
        enqueue(store, make_job("0", priority=priority))
        store.release(Q, claims[2:])
        store.release(Q, claims[:2])
        assert claim_ids(store, 5) == ["c", "b", "d", "a", "0"]

    def test_puts_jobs_back_in_their_lane(self, store, make_job):
        claims = start(store, make_job("a", alone=True))
        store.release(Q, claims)
        assert store.backlog([Q], lane=Lane.ALONE) == {Q: 1}

    def test_cancels_what_was_asked_to_stop(self, store, make_job):
        claims = start(store, make_job("a"))
        store.cancel(Q, ["a"])
        assert store.release(Q, claims) == []
        assert state_of(store, "a") is State.CANCELLED


class TestReleaseOfAWholeWorker:
    def test_hands_back_everything_it_holds_uncounted(self, store, make_job):
        start(store, make_job("a"), make_job("b"))
        start(store, make_job("c"), worker="other")
        moved = store.release_worker(Q, "w")
        assert sorted((job.id, job.state, job.crashes, job.worker) for job in moved) == [
            ("a", State.QUEUED, 0, "w"),
            ("b", State.QUEUED, 0, "w"),
        ]
        assert counts(store) == {"queued": 2, "running": 1}
        assert {c.attempt for c in claim(store, 2)} == {1}

    def test_buries_what_may_run_at_most_once(self, store, make_job, clock):
        job = make_job("a", at_most_once=True)
        start(store, job)
        lost = Recovered("a", job.record, State.DEAD, 1, "w", 1, clock.now, clock.now)
        assert [each._replace(since=0) for each in store.release_worker(Q, "w")] == [lost]
        assert state_of(store, "a") is State.DEAD
        assert info(store, "a").attempts[-1].outcome == "worker_lost"

    def test_works_in_steps_and_ends_the_lease(self, store, make_job):
        start(store, *[make_job() for _ in range(3)])
        assert len(store.release_worker(Q, "w", limit=2)) == 2
        assert len(store.release_worker(Q, "w", limit=2)) == 1
        assert dict(store.extend(Q, ["w"], LEASE)) == {}

    def test_cancels_what_was_asked_to_stop(self, store, make_job):
        start(store, make_job("a"))
        store.cancel(Q, ["a"])
        assert [(job.id, job.state) for job in store.release_worker(Q, "w")] == [("a", State.CANCELLED)]
        assert state_of(store, "a") is State.CANCELLED


class TestCheckin:
    @pytest.mark.accepts("G26")
    def test_is_shown_while_the_job_runs(self, store, make_job, clock):
        (claimed,) = start(store, make_job("a"))
        clock.advance(40)
        assert store.checkin(claimed, json.dumps({"message": "half", "progress": 0.5}).encode())
        assert info(store, "a").checkin == {"at": clock.now, "message": "half", "progress": 0.5}

    def test_is_forgotten_when_the_attempt_ends(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.checkin(claimed, b'{"message": "half"}')
        store.retry(claimed, FAILED, 0)
        assert info(store, "a").checkin is None

    def test_is_taken_from_a_job_that_was_asked_to_stop(self, store, make_job):
        (claimed,) = start(store, make_job("a"))
        store.cancel(Q, ["a"])
        assert store.checkin(claimed, b'{"message": "half"}')
