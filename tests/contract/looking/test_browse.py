"""What people see: one job, pages, numbers, series, the fleet."""

from __future__ import annotations

import pytest

from django_jobs.core.queue_stats import OVERDUE
from django_jobs.core.values import Claim, Job, State
from django_jobs.serialization.record import decode
from tests.contract.acts import FAILED, Q, claim, claim_alone, complete, enqueue, finish, ids_in, info, start

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def waited(claimed: Claim) -> int:
    """What its worker says (ms)."""
    job: Job = decode(claimed.id, claimed.queue, claimed.record)
    return claimed.waited(job)


class TestOneJob:
    def test_that_does_not_exist_is_none(self, store):
        assert store.get(Q, "a") is None
        assert store.find([Q, "other"], "a") is None

    def test_that_waits_has_no_time_no_worker_and_no_result(self, store, make_job):
        job = make_job("a")
        enqueue(store, job)
        found = info(store, "a")
        assert (found.id, found.queue, found.record) == ("a", Q, job.record)
        assert (found.at, found.token, found.worker, found.result, found.run_ms) == (0, 0, "", None, -1)

    def test_keeps_errors_with_any_text(self, store, make_job):
        odd = FAILED._replace(error='a "quote"\nnew line \\ é 🦊 \x00 \t', traceback="x\n" * 500)
        (claimed,) = start(store, make_job("a"))
        store.bury(claimed, odd)
        assert info(store, "a").attempts[0]._replace(at=0) == odd._replace(at=0)

    def test_many_come_in_the_order_asked_for(self, store, make_job):
        enqueue(store, *[make_job(id) for id in "abc"])
        assert [job.id for job in store.get_many(Q, ["c", "nothing", "a"])] == ["c", "a"]


class TestAJobWhoseResultIsKept:
    def test_says_when_it_ended_and_not_until_when_it_is_kept(self, store, make_job, clock):
        complete(store, *start(store, make_job("a", keep_result=DAY)), result=b"1")
        ended = clock.now
        clock.advance(5000)
        assert info(store, "a").at == ended
        assert [job.at for job in store.page(Q, State.SUCCEEDED)] == [ended]
        assert [job.at for job in store.get_many(Q, ["a"])] == [ended]


class TestAPage:
    @pytest.mark.accepts("G78")
    def test_is_cut_from_the_state_by_offset_and_limit(self, store, make_job):
        enqueue(store, *[make_job(str(n)) for n in range(10)])
        assert [job.id for job in store.page(Q, State.QUEUED, 3, 2)] == ["3", "4"]
        assert [job.id for job in store.page(Q, State.QUEUED, 9, 5)] == ["9"]
        assert store.page(Q, State.QUEUED, 10, 5) == []

    def test_can_be_turned_round(self, store, make_job, clock):
        for id in "abc":
            finish(store, State.DEAD, make_job(id))
            clock.advance(1)
        assert ids_in(store, State.DEAD) == ["a", "b", "c"]
        assert [job.id for job in store.page(Q, State.DEAD, 0, 2, reverse=True)] == ["c", "b"]

    def test_shows_queued_jobs_as_they_will_run(self, store, make_job):
        enqueue(store, make_job("alone", alone=True, priority=9), make_job("b"), make_job("a", priority=1))
        assert ids_in(store, State.QUEUED) == ["a", "b", "alone"]
        assert [job.id for job in store.page(Q, State.QUEUED, 1, 2)] == ["b", "alone"]

    def test_shows_scheduled_and_retry_jobs_by_their_time(self, store, make_job, clock):
        enqueue(store, make_job("late", run_at=clock.now + 20), make_job("soon", run_at=clock.now + 10))
        claims = start(store, make_job("later"), make_job("sooner"))
        for claimed, delay in zip(claims, (20, 10), strict=True):
            store.retry(claimed, FAILED, delay)
        assert ids_in(store, State.SCHEDULED) == ["soon", "late"]
        assert ids_in(store, State.RETRY) == ["sooner", "later"]

    def test_shows_running_jobs_by_the_time_of_their_claim(self, store, make_job, clock):
        for id in "bac":
            start(store, make_job(id))
            clock.advance(1)
        assert ids_in(store, State.RUNNING) == ["b", "a", "c"]

    def test_shows_blocked_jobs_by_key(self, store, make_job):
        jobs = [make_job(f"{key}{n}", limit_key=key, limit=1) for n in range(2) for key in ("y", "x")]
        start(store, *jobs)
        assert ids_in(store, State.BLOCKED) == ["x1", "y1"]

    def test_shows_only_the_last_attempt(self, store, make_job):
        enqueue(store, make_job("a"))
        for n in range(3):
            store.retry(claim(store)[0], FAILED._replace(error=str(n)), 0)
        assert [a.error for a in store.page(Q, State.RETRY)[0].attempts] == ["2"]

    def test_shows_no_more_than_a_kilobyte_of_a_result(self, store, make_job):
        complete(store, *start(store, make_job("a")), result=b'"' + b"x" * 5000 + b'"')
        result = store.page(Q, State.SUCCEEDED)[0].result
        assert result is None or len(result) <= 1024


class TestNumbers:
    def test_say_how_old_the_oldest_job_is_that_could_run(self, store, make_job, clock):
        assert store.stats([Q])[0].latency == 0
        enqueue(store, make_job("a"))
        clock.advance(5000)
        enqueue(store, make_job("b"), make_job("s", run_at=clock.now + 10**6))
        clock.advance(1000)
        assert store.stats([Q])[0].latency == 6000
        claim(store, 2)
        assert store.stats([Q])[0].latency == 0

    def test_count_a_scheduled_job_from_when_it_was_due(self, store, make_job, clock):
        enqueue(store, make_job("a", run_at=clock.now + DAY))
        clock.advance(DAY + 100)
        assert store.stats([Q])[0].latency == 100, "due, and nobody has claimed since"
        store.promote(Q)
        assert store.stats([Q])[0].latency == 100
        assert waited(claim(store)[0]) == 100

    def test_count_a_retry_from_when_it_was_due(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        clock.advance(5000)
        store.retry(claim(store)[0], FAILED, 1000)
        clock.advance(1300)
        store.promote(Q)
        assert store.stats([Q])[0].latency == 300
        assert waited(claim(store)[0]) == 300

    def test_see_the_oldest_job_behind_newer_ones_of_higher_priority(self, store, make_job, clock):
        enqueue(store, make_job("old", priority=-5))
        clock.advance(5000)
        enqueue(store, *[make_job(priority=n) for n in (3, 9, 100)], make_job("alone", alone=True))
        assert store.stats([Q])[0].latency == 5000
        claim(store, 3)
        claim_alone(store)
        assert store.stats([Q])[0].latency == 5000
        claim(store)
        assert store.stats([Q])[0].latency == 0

    def test_see_the_oldest_job_behind_those_that_came_back_or_were_let_in(self, store, make_job, clock):
        enqueue(store, *[make_job(f"limited-{n:02}", limit_key="k", limit=1) for n in range(30)])
        running = claim(store, 30)
        enqueue(store, make_job("back"), make_job("old"))
        back = claim(store)
        clock.advance(5000)
        complete(store, *running)
        store.release(Q, back)
        assert store.stats([Q])[0].latency == 5000
        assert [c.id for c in claim(store, 3)] == ["back", "limited-01", "old"]
        assert store.stats([Q])[0].latency == 0

    @pytest.mark.parametrize("blocked_by", ["limit", "pause", "name"])
    def test_count_a_blocked_job_from_when_it_was_let_in(self, store, make_job, clock, blocked_by):
        limit = {"limit_key": "k", "limit": 1}
        enqueue(store, make_job("first", name="n", **limit), make_job("a", name="n", **limit))
        if blocked_by == "pause":
            store.pause(Q, name="n")
        running = claim(store, 1 if blocked_by == "name" else 2)
        if blocked_by == "name":
            store.park(running[0], "old")
            claim(store, 2, knows="old")
        clock.advance(5000)
        assert store.stats([Q])[0].latency == 0, "it could not run"
        if blocked_by == "name":
            assert waited(claim(store, knows="new")[0]) == 0
            return
        if blocked_by == "limit":
            complete(store, *running)
        else:
            store.resume(Q, name="n")
        clock.advance(700)
        assert store.stats([Q])[0].latency == 700
        assert waited(claim(store)[0]) == 700

    def test_count_from_the_hand_back_the_loss_and_the_revival(self, store, make_job, clock):
        enqueue(store, make_job("a"))
        for come_back in (
            lambda claim: store.release(Q, [claim]),
            lambda claim: store.recover(Q, worker="w"),
            lambda claim: store.bury(claim, FAILED) and store.revive(Q, ["a"]),
        ):
            held = [*claim(store), *claim_alone(store)]
            clock.advance(5000)
            come_back(held[0])
            clock.advance(300)
            assert store.stats([Q])[0].latency == 300
        held = [*claim(store), *claim_alone(store)]
        assert waited(held[0]) == 300

    def test_say_nothing_of_latency_while_the_queue_is_paused_and_count_from_its_end(self, store, make_job, clock):
        enqueue(store, make_job("a"), make_job("b"))
        clock.advance(5000)
        store.pause(Q)
        clock.advance(5000)
        assert store.stats([Q])[0].latency == 0
        store.resume(Q)
        clock.advance(100)
        enqueue(store, make_job("c"))
        clock.advance(100)
        assert store.stats([Q])[0].latency == 200
        assert [waited(one) for one in claim(store, 3)] == [200, 200, 100]
        enqueue(store, make_job("d"))
        store.pause(Q, until=clock.now + 1000)
        clock.advance(1300)
        assert store.stats([Q])[0].latency == 300
        assert waited(claim(store)[0]) == 300

    def test_keep_how_long_a_job_has_waited_while_it_is_there(self, store, make_job, clock):
        enqueue(store, make_job("a", run_at=clock.now + DAY))
        assert store.get(Q, "a").since == 0
        clock.advance(DAY + 100)
        held = claim(store)
        clock.advance(5000)
        assert store.get(Q, "a").since == held[0].since == clock.now - 5100
        complete(store, *held)
        assert store.get(Q, "a").since == clock.now - 5100
        assert store.stats([Q])[0].latency == 0

    def test_count_what_is_overdue_and_say_since_when(self, store, make_job, clock):
        begun = clock.now
        enqueue(store, make_job("soon", run_at=begun + 1000), make_job("later", run_at=begun + 2000))
        (failed,) = start(store, make_job("failed"))
        store.retry(failed, FAILED, 500)
        clock.advance(500 + OVERDUE - 1)
        assert (store.stats([Q])[0].overdue, store.stats([Q])[0].overdue_since) == (0, 0)
        clock.advance(1)
        assert (store.stats([Q])[0].overdue, store.stats([Q])[0].overdue_since) == (1, begun + 500)
        clock.advance(1500)
        assert (store.stats([Q])[0].overdue, store.stats([Q])[0].overdue_since) == (3, begun + 500)
        claim(store, 3)
        assert (store.stats([Q])[0].overdue, store.stats([Q])[0].overdue_since) == (0, 0)

    def test_say_when_the_oldest_dead_job_died(self, store, make_job, clock):
        assert store.stats([Q])[0].dead_since == 0
        died = clock.now
        finish(store, State.DEAD, make_job("a"))
        clock.advance(5000)
        finish(store, State.DEAD, make_job("b"))
        assert store.stats([Q])[0].dead_since == died
        store.delete(Q, ["a"])
        assert store.stats([Q])[0].dead_since == died + 5000


class TestTheSeries:
    def test_has_a_minute_for_each_that_had_events(self, store, make_job, clock):
        first = clock.now - clock.now % MINUTE
        store.bury(start(store, make_job())[0], FAILED)
        clock.advance(2 * MINUTE)
        enqueue(store, make_job(), make_job())
        series = store.sums([Q], first)
        assert {event: n for event, n in series[first].items() if n} == {"enqueued": 1, "failed": 1, "dead": 1}
        assert series[first + 2 * MINUTE]["enqueued"] == 2

    def test_begins_where_asked_for(self, store, make_job, clock):
        enqueue(store, make_job())
        clock.advance(5 * MINUTE)
        enqueue(store, make_job())
        assert [minute for minute, events in store.sums([Q], clock.now).items() if any(events.values())] == [
            clock.now - clock.now % MINUTE
        ]


class TestTheFleet:
    @pytest.mark.accepts("G81")
    def test_forgets_those_that_say_nothing_or_ended(self, store, clock):
        store.publish_worker("w1", {}, 15_000)
        store.publish_worker("w2", {}, 30_000)
        clock.advance(15_001)
        assert [w.name for w in store.workers()] == ["w2"]
        store.forget_worker("w2")
        assert store.workers() == []

    def test_gives_each_command_once(self, store):
        store.publish_worker("w1", {}, 15_000)
        assert store.command_worker("w1", "quiet")
        assert store.command_worker("w1", "stop")
        assert store.publish_worker("w1", {}, 15_000) == ["quiet", "stop"]
        assert store.publish_worker("w1", {}, 15_000) == []

    def test_keeps_a_command_from_a_later_worker_of_the_same_name(self, store):
        store.publish_worker("w1", {"incarnation": "a"}, 15_000)
        assert store.command_worker("w1", "stop")
        assert store.publish_worker("w1", {"incarnation": "b"}, 15_000) == []
        assert store.command_worker("w1", "quiet")
        assert store.publish_worker("w1", {"incarnation": "b"}, 15_000) == ["quiet"]

    def test_keeps_small_documents(self, store):
        assert store.get_document("paused") == {}
        store.update_document("paused", {"a": True, "b": {"x": [1, None, "é"]}})
        store.update_document("paused", {"a": None, "c": 0})
        assert store.get_document("paused") == {"b": {"x": [1, None, "é"]}, "c": 0}
        assert store.get_document("other") == {}

    def test_changes_a_document_only_as_it_was_seen(self, store):
        store.update_document("bulk", {"a": ["x", 1], "b": 1})
        seen = store.get_document("bulk")
        for wrong in ({"a": ["x", 2]}, {"a": None}, {"a": seen["a"], "c": 0}, {"b": 1, "a": "x"}):
            assert store.update_document("bulk", {"b": 2, "c": 3, "a": None}, expected=wrong) is False
            assert store.get_document("bulk") == seen
        assert store.update_document("bulk", {"b": 2, "c": {"d": None}}, expected={"a": seen["a"], "c": None}) is True
        assert store.get_document("bulk") == {"a": ["x", 1], "b": 2, "c": {"d": None}}
        assert store.update_document("bulk", {"a": None}, expected={"c": {"d": None}}) is True
        assert store.update_document("bulk", {"c": None}) is True
        assert store.get_document("bulk") == {"b": 2}

    def test_describes_itself_without_a_password(self, store):
        said = store.describe()
        assert said["server"] in ("redis", "valkey")
        assert all(isinstance(value, str) for value in said.values())
