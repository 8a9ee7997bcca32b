"""What people do with schedules: look at them, run one now, pause it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_jobs import schedules
from django_jobs.schedules.scheduler import Periodic
from tests.integration.schedulers import (
    START,
    at,
    enqueued,
    known_job,
    scheduled,
    use,
)

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db


class TestByHand:
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
