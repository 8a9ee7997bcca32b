"""What people do with schedules: look at them, run one now, pause it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_jobs import schedules
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import InvalidSchedule, UnknownSchedule
from django_jobs.schedules.scheduler import Periodic
from tests.integration.schedulers import (
    START,
    at,
    enqueued,
    known_job,
    scheduled,
    tick_job,
    use,
)

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db


class TestByHand:
    def test_all_three_sources_are_listed(self, redis_store, use):
        from django_jobs.models import Schedule

        use(redis_store)
        registry.register(JobDefinition(tick_job, name="tests.decorated", cron="@hourly"))
        Schedule.objects.create(name="row", job="tests.tick", cron="@daily", timezone="Europe/Paris")
        try:
            with scheduled(nightly={"cron": "0 3 * * *"}):
                found = {entry.label: entry for entry in schedules.entries()}
        finally:
            registry.unregister("tests.decorated")
        assert found["tests.decorated"].id == "job:tests.decorated"
        assert found["nightly"].source == "settings"
        assert found["row"].timezone == "Europe/Paris"

    def test_next_runs_are_in_the_zone_of_the_schedule(self, redis_store, use):
        use(redis_store)
        with scheduled(job={"cron": "0 3 * * *", "timezone": "America/New_York"}):
            runs = schedules.next_runs(schedules.get_entry("job"), 2)
        assert runs == [datetime(2026, 11, 21, 8, tzinfo=UTC), datetime(2026, 11, 22, 8, tzinfo=UTC)]

    def test_run_now_does_not_touch_the_scheduled_times(self, redis_store, use, at):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *"}):
            entry = schedules.get_entry("settings:job")
            assert schedules.last_run(entry) is None
            handle = schedules.run_now(entry)
            assert redis_store.get("default", handle.id) is None or handle.queue == "default"
            assert schedules.last_run(entry) is None
            Periodic().tick()
            at(START + timedelta(minutes=1))
            Periodic().tick()
            assert schedules.last_run(entry) == datetime(2026, 11, 20, 10, 1, tzinfo=UTC)

    def test_a_paused_schedule_rests_in_the_whole_fleet_and_makes_up_for_nothing(self, store, use, at, enqueued):
        use(store)
        with scheduled(job={"cron": "* * * * *"}):
            fleet = [Periodic(), Periodic()]
            entry = schedules.get_entry("job")
            fleet[0].tick()
            schedules.pause(entry)
            assert schedules.paused_at(entry) == START
            at(START + timedelta(minutes=10))
            for each in fleet:
                each.tick()
            schedules.resume(entry)
            assert schedules.paused_at(entry) is None
            for each in fleet:
                each.tick()
            assert enqueued == []
            at(START + timedelta(minutes=11))
            for each in fleet:
                each.tick()
        assert len(enqueued) == 1

    def test_a_schedule_that_cannot_run_says_so(self, redis_store, use):
        use(redis_store)
        with scheduled(job={"cron": "61 * * * *"}), pytest.raises(InvalidSchedule, match="61"):
            schedules.run_now(schedules.get_entry("job"))

    def test_an_unknown_schedule_names_those_there_are(self, redis_store, use):
        use(redis_store)
        with scheduled(job={"cron": "* * * * *"}), pytest.raises(UnknownSchedule, match="settings:job"):
            schedules.get_entry("nothing")
