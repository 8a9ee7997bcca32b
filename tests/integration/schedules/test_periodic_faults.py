"""Periodic jobs when nobody looked for a while, or something is broken: which runs are made up for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError

from django_jobs import schedules
from django_jobs.exceptions import StoreUnavailable
from django_jobs.schedules import rows
from django_jobs.schedules.scheduler import Periodic
from tests.integration.schedulers import (
    START,
    at,
    enqueued,
    finish_all,
    known_job,
    run_times,
    scheduled,
    settled,
    use,
)

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db


class TestMissed:
    """After an outage of a day in which no scheduler ran."""

    @pytest.fixture
    def retry_state(self, redis_store, use, at):
        def run(after=timedelta(days=1), **entry):
            use(redis_store)
            with scheduled(job={"cron": "0 * * * *", **entry}):
                Periodic().tick()
                at(START + after)
                for _ in range(3):
                    Periodic().tick()

        return run

    def test_one_runs_the_last_missed_run(self, retry_state, enqueued):
        retry_state(missed="one")
        assert run_times(enqueued) == [datetime(2026, 11, 21, 10, tzinfo=UTC)]

    def test_one_is_the_default(self, retry_state, enqueued):
        retry_state()
        assert len(enqueued) == 1

    @pytest.mark.parametrize(("late", "runs"), [(59, 1), (61, 0)])
    def test_skip_counts_a_minute_from_the_time_of_the_run(self, retry_state, enqueued, late, runs):
        retry_state(after=timedelta(days=1, seconds=late - START.second), missed="skip")
        assert len(enqueued) == runs

    def test_all_runs_each(self, retry_state, enqueued):
        retry_state(missed="all")
        assert run_times(enqueued) == [datetime(2026, 11, 20, 11, tzinfo=UTC) + timedelta(hours=n) for n in range(24)]

    def test_all_runs_no_more_than_the_last_hundred(self, retry_state, enqueued):
        retry_state(missed="all", cron="* * * * *")
        assert len(enqueued) == 100
        assert run_times(enqueued)[-1] == datetime(2026, 11, 21, 10, tzinfo=UTC)


class TestFaults:
    @pytest.mark.accepts("G37")
    def test_a_broken_schedule_is_reported_once_and_stops_no_other(self, redis_store, use, at, enqueued, caplog):
        use(redis_store)
        broken = {
            "cron": {"cron": "0 0 31 2 *"},
            "zone": {"cron": "* * * * *", "timezone": "Mars/Olympus"},
            "unregistered": {"cron": "* * * * *", "job": "tests.nobody"},
            "args": {"cron": "* * * * *", "args": 5},
        }
        with scheduled(**broken, good={"cron": "* * * * *"}):
            periodic = Periodic()
            for minute in range(3):
                at(START + timedelta(minutes=minute))
                periodic.tick()
        assert len(enqueued) == 2
        reports = [record for record in caplog.records if "does not run" in record.message]
        assert len(reports) == len(broken)

    @pytest.mark.parametrize("fact", ["since:{times}:settings:job", "passed:settings:job", "paused:settings:job"])
    def test_what_the_fleet_remembers_may_be_damaged_and_stops_no_schedule(self, redis_store, use, at, enqueued, fact):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *"}):
            Periodic().tick()
            name = fact.format(times=schedules.get_entry("job").times)
            redis_store.update_document("schedules", {name: ["soon"]})
            Periodic().tick()
            at(START + timedelta(minutes=1))
            Periodic().tick()
        assert len(enqueued) == 1

    def test_a_full_queue_keeps_the_run_until_there_is_room(self, redis_store, use, at, enqueued):
        use(redis_store)
        settings = {
            "QUEUES": {"default": {"MAX_LENGTH": 1, "ON_FULL": "block"}},
            "SCHEDULES": {key: {"job": "tests.tick", "cron": "1 10 * * *"} for key in "ab"},
        }
        with settled(settings):
            periodic = Periodic(lambda: 0.0)
            periodic.tick()
            at(START + timedelta(minutes=1))
            assert periodic.tick() == 1.0
            assert len(enqueued) == 1
            finish_all(redis_store)
            periodic.tick()
        assert len(enqueued) == 2

    def test_a_database_that_is_away_leaves_the_rows_as_they_were(self, redis_store, use, at, enqueued, monkeypatch):
        use(redis_store)
        from django_jobs.models import Schedule

        Schedule.objects.create(name="row", job="tests.tick", cron="* * * * *")
        time = iter(range(0, 1000, 10))
        periodic = Periodic(lambda: next(time))
        periodic.tick()

        def away():
            raise OperationalError("the database is away")

        monkeypatch.setattr(rows, "database_entries", away)
        at(START + timedelta(minutes=1))
        periodic.tick()
        assert len(enqueued) == 1

    def test_a_store_that_is_away_loses_no_run(self, redis_store, use, at, enqueued, monkeypatch):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *"}):
            periodic = Periodic()
            periodic.tick()
            at(START + timedelta(minutes=1))
            with monkeypatch.context() as patch:

                def away(*args, **kwargs):
                    raise StoreUnavailable

                patch.setattr(redis_store, "enqueue", away)
                with pytest.raises(StoreUnavailable):
                    periodic.tick()
            periodic.tick()
        assert len(enqueued) == 1
