"""The page of the schedules, and the rows that people write."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import override_settings

from django_jobs import schedules
from django_jobs.admin.common.acts import sentence
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.models import Schedule
from django_jobs.models.audit import AuditEntry
from django_jobs.stores import use_store

PAGE = "/admin/django_jobs/dashboard/schedules/"
ROWS = "/admin/django_jobs/schedule/"


def greet(name="world"):
    """A job."""


@pytest.fixture(autouse=True)
def three_schedules(redis_store, clock):
    registry.register(JobDefinition(greet, name="tests.greet", cron="@hourly"))
    settings = {
        "STORE": "memory",
        "SCHEDULES": {"nightly": {"job": "tests.greet", "cron": "0 3 * * *", "args": ["<b>Ada</b>"]}},
    }
    with override_settings(DJANGO_JOBS=settings):
        use_store(redis_store)
        yield
        use_store(None)
    registry.unregister("tests.greet")


def row(**values):
    return Schedule(**{"name": "weekly", "job": "tests.greet", "cron": "@weekly", **values})


@pytest.mark.accepts("G10")
def test_the_page_shows_schedules_of_all_sources_with_their_next_runs(root):
    row().save()
    row(name="broken", cron="0 0 31 2 *").save()
    page = root.get(PAGE).content.decode()
    for text in ("tests.greet", "nightly", "weekly", "@hourly", "0 3 * * *", "cannot run", "Run now"):
        assert text in page
    assert f"{ROWS}{Schedule.objects.get(name='weekly').pk}/change/" in page


def test_the_table_of_rows_shows_the_way_to_all_schedules(root):
    assert f'href="{PAGE}"' in root.get(ROWS).content.decode().partition('id="changelist"')[2]


def test_a_name_from_a_person_is_escaped(root):
    row(name="<script>alert(1)</script>").save()
    page = root.get(PAGE).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_run_now_enqueues_the_job_and_is_logged(root, redis_store, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        answer = root.post(PAGE, {"do": "run", "schedule": "settings:nightly"}, follow=True)
    assert "will be enqueued as job" in answer.content.decode()  # the test is a transaction
    assert redis_store.stats(["default"])[0].totals["enqueued"] == 1
    assert "nightly was enqueued as job" in sentence(AuditEntry.objects.get())


def test_pause_and_resume(root):
    entry = schedules.get_entry("settings:nightly")
    assert "is paused" in root.post(PAGE, {"do": "pause", "schedule": entry.id}, follow=True).content.decode()
    assert schedules.paused_at(entry) is not None
    root.post(PAGE, {"do": "resume", "schedule": entry.id})
    assert schedules.paused_at(entry) is None
    assert AuditEntry.objects.count() == 2
    root.post(PAGE, {"do": "resume", "schedule": entry.id})
    assert AuditEntry.objects.count() == 2, "it changed nothing"


def test_a_second_click_says_that_it_changed_nothing_and_is_not_logged(root):
    for do, answer in (("pause", "It was paused already."), ("resume", "It was not paused any more.")):
        said = [root.post(PAGE, {"do": do, "schedule": "settings:nightly"}, follow=True).text for _ in range(2)]
        assert [answer in text for text in said] == [False, True]
    assert [entry.verb for entry in AuditEntry.objects.order_by("pk")] == ["pause", "resume"]


@pytest.mark.django_db(transaction=True)
def test_the_history_leads_to_the_job_of_a_run_and_tells_whether_it_is_new(root, redis_store):
    registry.register(JobDefinition(greet, name="tests.twin", unique="queued", on_conflict="replace"))
    twin = {"job": "tests.twin", "cron": "@daily"}
    with override_settings(DJANGO_JOBS={"STORE": "memory", "SCHEDULES": {"twin": twin}}):
        use_store(redis_store)
        made = [schedules.run_now(schedules.get_entry("twin"), on_commit=False).id]
        call_command("jobs", "run", "twin", stdout=StringIO())
        page = root.get("/admin/django_jobs/dashboard/history/").text
    registry.unregister("tests.twin")
    assert f'/job/default/{made[0]}/"' in page
    assert f"gave its arguments to the equal job {made[0]}" in page
    assert "was enqueued" not in page


def test_a_broken_schedule_says_why_it_cannot_be_run(root):
    broken = row(cron="0 0 31 2 *")
    broken.save()
    answer = root.post(PAGE, {"do": "run", "schedule": f"db:{broken.pk}"}, follow=True)
    assert "no time ever matches" in answer.content.decode()


def test_nonsense_is_refused(root):
    assert root.post(PAGE, {"do": "explode", "schedule": "settings:nightly"}).status_code == 400
    assert root.post(PAGE, {"do": "run", "schedule": "settings:nobody"}).status_code == 404
    assert root.get(f"{PAGE}?p=nonsense").status_code == 200
    assert root.put(PAGE).status_code == 405


def test_who_may_only_look_sees_no_buttons_and_changes_nothing(person, redis_store):
    viewer = person("view_jobs")
    assert "Run now" not in viewer.get(PAGE).content.decode()
    assert viewer.post(PAGE, {"do": "pause", "schedule": "settings:nightly"}).status_code == 403
    assert redis_store.get_document("schedules") == {}
    runner = person("view_jobs", "run_schedules")
    assert "Run now" in runner.get(PAGE).content.decode()
    assert runner.post(PAGE, {"do": "run", "schedule": "settings:nightly"}).status_code == 302
    assert person("run_schedules").get(PAGE).status_code == 403


@pytest.mark.django_db
class TestRows:
    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("cron", {"cron": "0 0 31 2 *"}),
            ("cron", {"cron": "61 * * * *"}),
            ("job", {"job": "tests.nobody"}),
            ("timezone", {"timezone": "Mars/Olympus"}),
            ("args", {"args": {"name": "Ada"}}),
            ("args", {"args": ["Ada", "Grace"]}),
            ("kwargs", {"kwargs": ["Ada"]}),
            ("kwargs", {"kwargs": {"nam": "Ada"}}),
            ("missed", {"missed": "none"}),
            ("overlap", {"overlap": "none"}),
            ("jitter", {"jitter": 86_401}),
        ],
    )
    def test_what_could_never_run_is_refused_when_it_is_written(self, field, values):
        with pytest.raises(ValidationError) as caught:
            row(**values).full_clean()
        assert field in caught.value.message_dict

    def test_a_good_row_is_accepted(self):
        row(timezone="America/New_York", args=["Ada"], missed="all", overlap="skip", jitter=60).full_clean()

    def test_the_form_refuses_arguments_that_are_not_json(self, root):
        data = {"name": "x", "job": "tests.greet", "cron": "* * * * *", "args": "[1", "kwargs": "{}", "missed": "one",
                "overlap": "allow", "jitter": "0"}  # fmt: skip
        assert "Enter a valid JSON" in root.post(f"{ROWS}add/", data).content.decode()
        root.post(f"{ROWS}add/", data | {"args": '["Ada"]'})
        assert Schedule.objects.get().args == ["Ada"]

    @pytest.mark.parametrize(
        "field",
        [{"args": '["\\ud800"]'}, {"kwargs": '{"name": "\\ud800"}'}, {"args": "[1e400]"}, {"args": "[" * 50_000}],
        ids=["half a pair", "half a pair by name", "infinite", "deep"],
    )
    def test_the_form_refuses_json_that_cannot_be_stored(self, root, field):
        data = {"name": "x", "job": "tests.greet", "cron": "* * * * *", "args": "[]", "kwargs": "{}", "missed": "one",
                "overlap": "allow", "jitter": "0"}  # fmt: skip
        answer = root.post(f"{ROWS}add/", data | field)
        assert answer.status_code == 200
        assert "Enter a valid JSON" in answer.content.decode()
        assert not Schedule.objects.exists()

    def test_a_field_of_arguments_that_is_left_empty_has_none(self, root):
        data = {"name": "x", "job": "tests.greet", "cron": "* * * * *", "args": "", "kwargs": "", "missed": "one",
                "overlap": "allow", "jitter": "0"}  # fmt: skip
        assert root.post(f"{ROWS}add/", data).status_code == 302
        saved = Schedule.objects.get()
        assert (saved.args, saved.kwargs) == ([], {})

    def test_a_row_with_a_single_time_is_written_shown_and_noted(self, root):
        data = {"name": "x", "job": "tests.greet", "args": '["Ada"]', "kwargs": "{}", "missed": "one", "jitter": "0",
                "overlap": "allow", "queue": "default", "priority": "5", "expires_in": "60"}  # fmt: skip
        assert "It does not say when it runs" in root.post(f"{ROWS}add/", data).content.decode()
        root.post(f"{ROWS}add/", data | {"at_0": "2099-12-01", "at_1": "08:00:00", "enabled": "on"})
        saved = Schedule.objects.get()
        assert (saved.queue, saved.priority, saved.expires_in) == ("default", 5, 60)
        assert "@at 2099-12-01T08:00:00+00:00" in root.get(ROWS).content.decode()
        assert "2099-12-01T08:00:00+00:00" in root.get(PAGE).content.decode()
        assert AuditEntry.objects.get().details["changes"]["at"] == [None, "2099-12-01 08:00:00+00:00"]

    def test_a_row_shows_its_next_five_runs_in_its_own_zone(self, root, clock):
        saved = row(cron="0 12 * * *", timezone="Asia/Kathmandu")
        saved.save()
        page = root.get(f"{ROWS}{saved.pk}/change/").content.decode()
        assert page.count("12:00:00 +0545") == 5
        assert "12:00:00 +0545" in root.get(ROWS).content.decode()
