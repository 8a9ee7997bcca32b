"""Last night and tonight: what became of each scheduled time, why, and which ones come."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils.translation import override

from django_jobs import schedules
from django_jobs.core.values import Attempt, Ended
from django_jobs.schedules.scheduler import Periodic
from django_jobs.workflows import end_calls
from tests.integration.schedulers import START, at, enqueued, finish_all, known_job, ms, scheduled, use

__all__ = ["at", "enqueued", "known_job", "use"]

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
NIGHT = "/admin/django_jobs/dashboard/schedules/tonight/"


def hours(day: schedules.Day) -> list[tuple[int, str]]:
    return [(datetime.fromtimestamp(run.at / 1000, UTC).hour, run.ended) for run in day.last]


def test_each_time_of_the_last_day_says_what_became_of_it(redis_store, use, at, admin_client):
    """Hourly: two runs, three in a pause, four without a worker, the last of which is made up for;
    one that is skipped, because the job of the one before has not ended, and one without a worker now."""
    store = use(redis_store)
    with scheduled(hourly={"cron": "0 * * * *", "overlap": "skip"}):
        periodic = Periodic(lambda: 0.0)
        periodic.tick()
        entry = schedules.get_entry("hourly")
        for hour in (1, 2):
            at(START + hour * HOUR)  # 11:00, 12:00
            periodic.tick()
            if hour == 2:
                (claim,) = store.claim("default", "w", 1, lease=60_000).claims
                store.bury(claim, Attempt(1, "failed", store.now()))
            finish_all(store)
        schedules.pause(entry)
        at(START + 5 * HOUR)  # 13:00, 14:00, 15:00
        schedules.resume(entry)
        at(START + 9 * HOUR)  # 16:00, 17:00, 18:00; 19:00 is made up for
        Periodic(lambda: 0.0).tick()
        at(START + 10 * HOUR)  # 20:00: the job of 19:00 waits
        periodic.tick()
        at(START + 11 * HOUR)
        (day,) = schedules.days([entry])
        assert hours(day) == [
            (11, "succeeded"), (12, "dead"), (13, "paused"), (14, "paused"), (15, "paused"), (16, "missed"),
            (17, "missed"), (18, "missed"), (19, "queued"), (20, "skipped"), (21, "missed"),
        ]  # fmt: skip
        assert [run.job == entry.job_id(run.at) for run in day.last[:3]] == [True, True, False]
        assert "had not ended" in day.last[-2].says
        assert (len(day.next), day.later, day.next[0]) == (24, False, ms(START + 12 * HOUR - timedelta(seconds=30)))
        out = StringIO()
        call_command("jobs", "schedules", "--tonight", stdout=out)
        assert "1 succeeded, 1 dead, 3 paused, 4 missed, 1 queued, 1 skipped" in out.getvalue()
        out = StringIO()
        call_command("jobs", "schedules", "--tonight", "--json", stdout=out)
        (told,) = json.loads(out.getvalue())
        assert told["last_day"][-1]["ended"] == "missed"
        page = admin_client.get(NIGHT).text
        assert page.count('data-ended="missed"') == 4
        assert "It was skipped: the job of an earlier run had not ended." in page
        at(START + 40 * HOUR)
        assert [run.ended for run in schedules.days([entry])[0].last] == ["missed"] * 24


def test_a_run_that_is_retried_in_another_queue_is_found_there(redis_store, use, at):
    store = use(redis_store)
    with scheduled(hourly={"cron": "0 * * * *"}):
        periodic = Periodic(lambda: 0.0)
        periodic.tick()
        at(START + HOUR)
        periodic.tick()
        (claim,) = store.claim("default", "w", 1, lease=60_000).claims
        store.settle("default", [Ended(claim, "retry", Attempt(1, "retried", store.now()), 90_000, queue="mail")])
        for queue in ("default", "mail"):  # on its way, and there
            (run,) = schedules.days([schedules.get_entry("hourly")])[0].last
            assert (run.ended, run.queue) == ("retry", queue)
            end_calls.follow(store, "default")


def test_a_paused_or_broken_schedule_starts_nothing_tonight(redis_store, use, at):
    use(redis_store)
    with scheduled(
        paused={"cron": "0 3 * * *"}, off={"cron": "0 3 * * *", "enabled": False}, broken={"cron": "0 0 31 2 *"}
    ):
        Periodic(lambda: 0.0).tick()
        schedules.pause(schedules.get_entry("paused"))
        found = {day.entry.label: day for day in schedules.days(schedules.entries())}
        assert [list(day.next) for day in found.values()] == [[], [], []]
        assert found["broken"].problem
        assert found["paused"].paused


def test_times_that_come_often_are_cut_and_it_is_said(redis_store, use, at):
    use(redis_store)
    with scheduled(often={"cron": "* * * * *"}, burst={"cron": "* 3 * * *"}):
        Periodic(lambda: 0.0).tick()
        for entry in schedules.entries():
            schedules.state.begin(redis_store, entry, ms(START - timedelta(days=2)))
        for day in schedules.days(schedules.entries()):
            assert (len(day.last), day.earlier, len(day.next), day.later) == (24, True, 24, True)
            assert day.last[-1].at == ms(
                datetime(2026, 11, 20, 3, 59, tzinfo=UTC)
                if day.entry.label == "burst"
                else START - timedelta(seconds=30)
            )


def test_the_reasons_are_in_the_language_of_the_reader(redis_store, use, at):
    run = schedules.Run(0, "missed")
    with override("de"):
        assert run.says.startswith("Kein Worker")
