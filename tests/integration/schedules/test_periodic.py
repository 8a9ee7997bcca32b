"""Periodic jobs: every run once, whatever happens to the schedulers; and what the policies say."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from django_jobs import schedules
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.schedules.cron import runs_between
from django_jobs.schedules.scheduler import Periodic
from tests.integration.schedulers import (
    START,
    at,
    enqueued,
    finish_all,
    known_job,
    ms,
    run_times,
    scheduled,
    tick_job,
    use,
)
from tests.support.dose import dose

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db

#: Runs of a schedule, one each second.
RUNS = dose(2_000, long=10_000)


@pytest.mark.accepts("G10", "G36", "G65")
def test_five_schedulers_run_each_time_once_through_restarts_and_both_clock_changes(store, use, at, clock, enqueued):
    use(store)
    zones = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
    crons = ["30 2 * * *", "30 1 * * *", "15 * * * *"]
    entries = {
        f"{zone.replace('/', '.')}-{n}".replace("_", ""): {"cron": text, "timezone": zone}
        for zone in zones
        for n, text in enumerate(crons)
    }
    dice = random.Random(7)
    begin, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 11, 10, tzinfo=UTC)
    windows = [(datetime(2026, m, d, tzinfo=UTC), timedelta(days=2)) for m, d in
               [(3, 7), (3, 28), (4, 4), (10, 3), (10, 24), (10, 31)]]  # fmt: skip
    with scheduled(**entries):
        at(begin)
        schedulers = [Periodic(lambda: 0.0) for _ in range(5)]
        expected: Counter[tuple[str, int]] = Counter()
        for window, length in windows:
            at(window)
            for key in entries:
                found = schedules.get_entry(key)
                schedules.pause(found)
                schedules.resume(found)  # begin anew: the weeks between are not of interest
            now, until = window, window + length
            for key, entry in entries.items():
                zone = ZoneInfo(entry["timezone"])
                expected.update((key, ms(f)) for f in runs_between(entry["cron"], window, until, zone))
            while now < until:
                now = min(until, now + timedelta(seconds=dice.randint(600, 3300)))
                at(now)
                for _ in range(2):
                    n = dice.randrange(5)
                    if dice.random() < 0.1:
                        schedulers[n] = Periodic(lambda: 0.0)
                    schedulers[n].tick()
            finish_all(store)
    assert end > until
    ran = Counter((id.split(":")[2], int(id.split(":")[3])) for id in enqueued)
    assert ran == expected
    assert sum(ran.values()) > 300


@pytest.mark.accepts("G36", "G64", "G65", "G76")
def test_thousands_of_runs_are_each_enqueued_once(redis_store, use, clock, enqueued):
    use(redis_store)
    with scheduled(every={"cron": "* * * * * *"}):
        schedulers = [Periodic(lambda: 0.0) for _ in range(5)]
        schedulers[0].tick()
        dice = random.Random(3)
        for step in range(RUNS):
            clock.advance(1000)
            dice.choice(schedulers).tick()
            if step % 5 == 0:
                dice.choice(schedulers).tick()
            if step % 100 == 0:
                schedulers[dice.randrange(5)] = Periodic(lambda: 0.0)
                finish_all(redis_store)
    times = run_times(enqueued)
    assert times == [START + timedelta(seconds=n) for n in range(1, RUNS + 1)]


class TestBeginning:
    def test_a_new_schedule_does_not_run_at_once_but_at_its_next_time(self, redis_store, use, at, enqueued):
        use(redis_store)
        with scheduled(nightly={"cron": "0 10 * * *"}):
            periodic = Periodic(lambda: 0.0)
            assert periodic.tick() == 5.0
            assert enqueued == []
            at(START.replace(second=0) + timedelta(days=1))
            periodic.tick()
        assert enqueued == [f"cron:settings:nightly:{ms(START.replace(second=0) + timedelta(days=1))}"]

    def test_a_tick_says_how_long_until_the_next_run(self, redis_store, use, clock):
        use(redis_store)
        with scheduled(soon={"cron": "*/10 * * * * *"}):
            clock.advance(7_500)
            assert Periodic(lambda: 0.0).tick() == 2.5

    @pytest.mark.accepts("G64")
    def test_the_next_run_is_not_late_by_what_the_tick_has_taken(self, redis_store, use, clock, monkeypatch):
        use(redis_store)
        enqueue = redis_store.enqueue

        def slow(*args, **options):
            seconds[0] += 0.3
            return enqueue(*args, **options)

        seconds = [0.0]
        with scheduled(soon={"cron": "*/3 * * * * *"}):
            periodic = Periodic(lambda: seconds[0])
            periodic.tick()
            monkeypatch.setattr(redis_store, "enqueue", slow)
            clock.advance(3_000)
            assert periodic.tick() == 3.0 - 0.3

    def test_a_changed_expression_begins_anew(self, redis_store, use, at, enqueued):
        use(redis_store)
        with scheduled(report={"cron": "0 0 * * *"}):
            Periodic().tick()
        at(START + timedelta(hours=5))
        with scheduled(report={"cron": "0 * * * *"}):
            Periodic().tick()
            assert enqueued == []
            at(START + timedelta(hours=6))
            Periodic().tick()
        assert len(enqueued) == 1

    def test_one_that_is_switched_off_and_on_again_makes_up_for_nothing(self, redis_store, use, at, enqueued):
        use(redis_store)
        with scheduled(report={"cron": "* * * * *"}):
            Periodic().tick()
        with scheduled(report={"cron": "* * * * *", "enabled": False}):
            at(START + timedelta(hours=1))
            Periodic().tick()
        with scheduled(report={"cron": "* * * * *"}):
            at(START + timedelta(hours=2))
            Periodic().tick()
        assert enqueued == []


class TestOverlap:
    def test_skip_leaves_a_run_out_while_the_last_job_has_not_ended(self, store, use, at, enqueued):
        use(store)
        with scheduled(job={"cron": "* * * * *", "overlap": "skip"}):
            periodic = Periodic()
            periodic.tick()
            for minute in (1, 2, 3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
            assert len(enqueued) == 1
            finish_all(store)
            periodic.tick()
            assert len(enqueued) == 1, "a run that was left out is not made up for"
            at(START + timedelta(minutes=4))
            Periodic().tick()
        assert len(enqueued) == 2

    def test_skip_waits_for_the_process_of_a_job_that_was_killed(self, redis_store, use, at, enqueued):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *", "overlap": "skip"}):
            periodic, added = Periodic(), []
            periodic.tick()
            for minute in (1, 2, 3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
                added.append(len(enqueued))
                if minute == 1:
                    [claimed] = redis_store.claim("default", "w", 1, lease=3_600_000).claims
                    assert redis_store.kill("default", [claimed.id], "it hangs") == [claimed.id]
                elif minute == 2:
                    redis_store.release_worker("default", "w")
        assert added == [1, 1, 2]

    def test_skip_does_not_wait_for_a_job_that_may_not_begin_any_more(self, redis_store, use, at, enqueued):
        use(redis_store)
        registry.unregister("tests.tick")
        registry.register(JobDefinition(tick_job, name="tests.tick", expires_in=90))
        with scheduled(job={"cron": "* * * * *", "overlap": "skip"}):
            periodic, added = Periodic(), []
            for minute in range(4):
                at(START + timedelta(minutes=minute))
                periodic.tick()
                added.append(len(enqueued))
        assert added == [0, 1, 1, 2]

    def test_allow_runs_beside_it(self, redis_store, use, at, enqueued):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *"}):
            periodic = Periodic()
            periodic.tick()
            for minute in (1, 2, 3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
        assert len(enqueued) == 3


def test_jitter_puts_the_job_off_by_the_same_time_everywhere(redis_store, use, at, enqueued):
    use(redis_store)
    with scheduled(job={"cron": "1 10 * * *", "jitter": 3600}):
        Periodic().tick()
        at(START + timedelta(minutes=1))
        Periodic().tick()
        Periodic().tick()
    (id,) = enqueued
    info = redis_store.get("default", id)
    assert info.state is State.SCHEDULED
    planned = ms(datetime(2026, 11, 20, 10, 1, tzinfo=UTC))
    assert planned < info.at <= planned + 3_600_000


@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_a_unique_job_that_still_waits_serves_the_run(redis_store, use, at, enqueued, policy):
    use(redis_store)
    registry.register(JobDefinition(tick_job, name="tests.unique_tick", unique="queued", on_conflict=policy))
    try:
        with scheduled(job={"cron": "* * * * *", "job": "tests.unique_tick"}):
            for minute in range(4):
                at(START + timedelta(minutes=minute))
                Periodic().tick()
            finish_all(redis_store)
            Periodic().tick()
        assert len(enqueued) == 1
    finally:
        registry.unregister("tests.unique_tick")
