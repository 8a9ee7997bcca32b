"""What a schedule may say of its jobs, and when it runs without a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_jobs import schedules
from django_jobs.models import Schedule
from django_jobs.schedules.scheduler import Periodic
from django_jobs.serialization.record import decode
from tests.integration.schedulers import START, at, enqueued, known_job, ms, run_times, settled, use

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db

QUEUES = {"default": {}, "slow": {}}
SOON = START + timedelta(minutes=10)


def periodic(**options: Any) -> Any:
    return settled({"QUEUES": QUEUES, "SCHEDULES": {"report": {"job": "tests.tick", **options}}})


class TestItsJobs:
    OPTIONS = {"queue": "slow", "priority": 7, "expires_in": 60}

    def assert_followed(self, store: Any, id: str, due: int) -> None:
        info = store.get("slow", id)
        controls = decode(id, "slow", info.record).controls
        assert (controls.priority, controls.expires_at) == (7, due + 60_000)

    def test_have_the_queue_priority_and_expiry_of_the_settings(self, redis_store, use, at, enqueued):
        store = use(redis_store)
        with periodic(every="10m", **self.OPTIONS):
            Periodic(lambda: 0.0).tick()
            at(SOON)
            Periodic(lambda: 0.0).tick()
            (id,) = enqueued
            self.assert_followed(store, id, ms(SOON))

    def test_have_those_of_the_row(self, redis_store, use, at, enqueued):
        store = use(redis_store)
        with settled({"QUEUES": QUEUES}):
            Schedule.objects.create(name="report", job="tests.tick", every="10m", **self.OPTIONS)
            Periodic(lambda: 0.0).tick()
            at(SOON)
            Periodic(lambda: 0.0).tick()
            (id,) = enqueued
            self.assert_followed(store, id, ms(SOON))

    def test_have_them_if_a_person_runs_it_now(self, redis_store, use):
        store = use(redis_store)
        with periodic(every="10m", **self.OPTIONS):
            handle = schedules.run_now(schedules.get_entry("report"), on_commit=False)
            assert schedules.queue_of(schedules.get_entry("report")) == "slow"
            self.assert_followed(store, handle.id, ms(START))

    def test_expire_only_after_they_could_have_run(self, redis_store, use, at, enqueued):
        store = use(redis_store)
        with periodic(cron="1 10 * * *", **self.OPTIONS):
            Periodic(lambda: 0.0).tick()
            at(START + timedelta(hours=3))  # no worker was there
            Periodic(lambda: 0.0).tick()
            (id,) = enqueued
            self.assert_followed(store, id, ms(START + timedelta(hours=3)))

    def test_are_enqueued_once_for_a_time_although_the_queue_is_changed(self, redis_store, use, at, enqueued):
        use(redis_store)
        with periodic(every="10m", queue="slow"):
            Periodic(lambda: 0.0).tick()
            at(SOON)
            Periodic(lambda: 0.0).tick()
        with periodic(every="10m", queue="default"):
            Periodic(lambda: 0.0).tick()
        assert len(enqueued) == 1


def test_an_interval_runs_each_time_once(redis_store, use, clock, enqueued):
    use(redis_store)
    with periodic(every=90):
        schedulers = [Periodic(lambda: 0.0) for _ in range(3)]
        for step in range(600):
            schedulers[step % 3].tick()
            clock.advance(1000)
    times = run_times(enqueued)
    assert len(times) == 6
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=90)}


class TestASingleTime:
    WHEN = datetime(2026, 11, 20, 11, tzinfo=UTC)

    def test_runs_once(self, redis_store, use, at, enqueued):
        use(redis_store)
        with periodic(at="2026-11-20T12:00", timezone="Europe/Paris"):
            worker = Periodic(lambda: 0.0)
            worker.tick()
            assert schedules.next_runs(schedules.get_entry("report"), 3) == [self.WHEN]
            for hours in (0, 1, 2, 24):
                at(self.WHEN + timedelta(hours=hours))
                assert worker.tick() == 5.0
                Periodic(lambda: 0.0).tick()
            assert run_times(enqueued) == [self.WHEN]
            assert schedules.next_runs(schedules.get_entry("report"), 3) == []

    def test_that_passed_while_no_worker_ran_comes_late(self, redis_store, use, at, enqueued):
        use(redis_store)
        with periodic(at=self.WHEN):
            Periodic(lambda: 0.0).tick()
            at(self.WHEN + timedelta(days=1))
            Periodic(lambda: 0.0).tick()
        assert run_times(enqueued) == [self.WHEN]

    def test_that_is_over_when_it_is_written_does_not_come(self, redis_store, use, at, enqueued):
        use(redis_store)
        with periodic(at=START - timedelta(hours=1)):
            Periodic(lambda: 0.0).tick()
            at(self.WHEN)
            Periodic(lambda: 0.0).tick()
        assert enqueued == []

    def test_of_a_row_is_a_moment(self, redis_store, use, at, enqueued):
        use(redis_store)
        Schedule.objects.create(name="once", job="tests.tick", at=self.WHEN, timezone="Asia/Tokyo")
        Periodic(lambda: 0.0).tick()
        at(self.WHEN)
        Periodic(lambda: 0.0).tick()
        assert run_times(enqueued) == [self.WHEN]


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"cron": "0 3 * * *", "every": "90s"}, "cron", "It has cron and every."),
        ({}, "cron", "It does not say when it runs."),
        ({"every": "90"}, "every", "The interval '90' is not valid."),
        ({"every": "90s", "queue": "slw"}, "queue", "queue is 'slw', which is not in QUEUES."),
        ({"every": "90s", "priority": 101}, "priority", "from -100 to 100"),
        ({"every": "90s", "expires_in": 0}, "expires_in", "use a duration"),
    ],
)
def test_a_row_that_cannot_run_is_refused_at_its_field(store, options: Any, field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Schedule(name="x", job="tests.tick", **options).full_clean()
    assert said in str(caught.value.message_dict[field])
