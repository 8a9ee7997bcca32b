"""`manage.py jobs schedules` and `manage.py jobs run`."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_jobs import schedules
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.models import AuditEntry, Schedule
from django_jobs.stores import use_store

pytestmark = pytest.mark.django_db


def greet(name="world"):
    """A job."""


@pytest.fixture(autouse=True)
def two_schedules(redis_store):
    registry.register(JobDefinition(greet, name="tests.greet"))
    entry = {"job": "tests.greet", "cron": "0 3 * * *"}
    with override_settings(DJANGO_JOBS={"STORE": "memory", "ON_COMMIT": False, "SCHEDULES": {"nightly": entry}}):
        use_store(redis_store)
        Schedule.objects.create(name="broken", job="tests.nobody", cron="* * * * *")
        yield
        use_store(None)
    registry.unregister("tests.greet")


def jobs(*arguments: str) -> str:
    out = StringIO()
    call_command("jobs", *arguments, stdout=out)
    return out.getvalue()


def test_schedules_are_listed_with_their_next_runs():
    schedules.pause(schedules.get_entry("broken"))
    nightly, broken = json.loads(jobs("schedules", "--json"))
    assert (nightly["id"], nightly["state"], nightly["problem"]) == ("settings:nightly", "on", "")
    assert len(nightly["next_runs"]) == 3
    assert all("T03:00:00" in run for run in nightly["next_runs"])
    assert broken["state"] == "paused"
    assert "tests.nobody" in broken["problem"]
    assert "settings:nightly" in jobs("schedules")


def test_people_read_the_next_run_in_the_zone_of_the_schedule(redis_store):
    Schedule.objects.create(name="tokyo", job="tests.greet", cron="0 3 * * *", timezone="Asia/Tokyo")
    (line,) = [line for line in jobs("schedules").splitlines() if "Asia/Tokyo" in line]
    assert "T03:00:00+09:00" in line


def test_run_enqueues_the_job_once_now(redis_store):
    answer = json.loads(jobs("run", "nightly", "--json"))
    assert redis_store.get("default", answer["id"]) is not None


@pytest.mark.parametrize(
    ("conflict", "told", "acts"), [("skip", "Nothing was enqueued", 1), ("replace", "It has the new arguments now", 3)]
)
def test_a_run_whose_equal_job_waits_says_so(redis_store, admin_client, conflict, told, acts):
    registry.unregister("tests.greet")
    registry.register(JobDefinition(greet, name="tests.greet", unique="queued", on_conflict=conflict))
    first = json.loads(jobs("run", "nightly", "--json"))
    assert first["added"] is True
    assert f"An equal tests.greet job is already waiting in queue default. {told}." in jobs("run", "nightly")
    data = {"do": "run", "schedule": "nightly"}
    page = admin_client.post("/admin/django_jobs/dashboard/schedules/", data, follow=True)
    assert "An equal job is already waiting." in page.text
    assert [entry.details["job"] for entry in AuditEntry.objects.all()] == [["default", first["id"]]] * acts


def test_an_unknown_schedule_is_an_error_that_names_the_others():
    with pytest.raises(CommandError, match="settings:nightly"):
        jobs("run", "weekly")


def test_a_schedule_is_paused_and_resumed_by_its_id_or_name():
    entry = schedules.get_entry("settings:nightly")
    for _ in range(2):
        assert json.loads(jobs("pause", "--schedule", "nightly", "--json")) == {"paused": {"schedule": entry.id}}
    assert schedules.paused_at(entry) is not None
    assert "settings:nightly" in jobs("paused")
    for _ in range(2):
        assert "settings:nightly: resumed." in jobs("resume", "--schedule", entry.id)
    assert schedules.paused_at(entry) is None
    assert [(each.verb, each.kind, each.subject) for each in AuditEntry.objects.order_by("id")] == [
        ("pause", "schedule", entry.id),
        ("resume", "schedule", entry.id),
    ]


@pytest.mark.parametrize("more", [("default",), ("--job", "tests.greet"), ("--for", "5"), ("--reason", "night")])
def test_a_schedule_is_paused_alone_and_until_it_is_resumed(more):
    with pytest.raises(CommandError, match="until somebody resumes it"):
        jobs("pause", "--schedule", "nightly", *more)
    assert schedules.paused_at(schedules.get_entry("nightly")) is None
