"""What the pages show and do, from the list to the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import path

from django_jobs import admin as console
from django_jobs import bulk
from django_jobs.codec import decode
from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores import use_store
from django_jobs.stores.base import Store
from django_jobs.stores.redis import RedisStore
from django_jobs.values import State
from tests.console_data import Filler, fill_typical, worker_info
from tests.integration.console.conftest import BASE
from tests.integration.console.test_who_may_do_what import PAGES

pytestmark = pytest.mark.django_db

own_site = admin.AdminSite(name="operations")
console.register(own_site)
urlpatterns = [path("admin/", admin.site.urls), path("operations/", own_site.urls)]


def state_of(store: Store, id: str) -> State | None:
    info = store.get("default", id)
    return info.state if info else None


# -- looking -------------------------------------------------------------------


@pytest.mark.accepts("G78", "G09", "K01")
def test_the_overview_says_what_needs_a_person(console_store: Store, filler: Filler, root: Client) -> None:
    assert "All is well" in root.get(BASE).text
    filler.make(State.DEAD)
    filler.add()
    console_store.pause("default", reason="the disk is full")
    text = root.get(BASE).text
    assert "1 job of default is dead." in text
    assert "1 job waits and no worker runs." in text
    assert "the disk is full" in text


@pytest.mark.accepts("K01")
def test_the_apps_own_page_is_the_overview_too(console_store: Store, filler: Filler, root: Client) -> None:
    filler.make(State.DEAD)
    assert "1 job of default is dead." in root.get("/admin/django_jobs/").text


@pytest.mark.accepts("G27", "G41")
def test_a_list_shows_what_its_state_is_about(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    shown = {
        "running": [
            ">Job<",
            ">Arguments<",
            ">Started<",
            ">Last check-in<",
            ">Worker<",
            "order_id=",
            "42 %",
            "rows 4,200 of 10,000",
            "web-1:4711/1",
        ],
        "retry": ["HTTPError", "500 Server Error", "1/10"],
        "dead": ["Declined", "Card ending 1003 was declined", "1/10"],
        "succeeded": ["182 ms", "sent"],
        "scheduled": ["shop.send_receipt"],
        "queued": ["shop.send_receipt", "order_id="],
        "cancelled": ["shop.send_receipt"],
    }
    for state, texts in shown.items():
        page = root.get(f"{BASE}jobs/{state}/").text
        for text in texts:
            assert text in page, (state, text)
    headings = ("Job", "Queue", "Arguments", "Started", "Last check-in", "Worker")
    assert all(f'<th scope="col">{text}</th>' in root.get(f"{BASE}jobs/running/").text for text in headings)


@pytest.mark.accepts("G58")
def test_dead_jobs_come_newest_first_and_page_to_the_last(console_store: Store, filler: Filler, root: Client) -> None:
    ids = [filler.make(State.DEAD) for _ in range(120)]
    first, last = root.get(f"{BASE}jobs/dead/").text, root.get(f"{BASE}jobs/dead/?p=3").text
    assert ids[-1] in first
    assert ids[0] not in first
    assert ids[0] in last
    assert root.get(f"{BASE}jobs/dead/?p=99").text.count('name="job"') == 20


def test_a_search_says_how_far_it_looked(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    page = root.get(f"{BASE}jobs/dead/?q=declined").text
    assert "Showing 4 matches from a look at 10 of 10 jobs." in page
    assert page.count('name="job"') == 4
    assert root.get(f"{BASE}jobs/dead/?name=shop.send_receipt").text.count('name="job"') == 6
    assert root.get(f"{BASE}jobs/dead/?q=order_id%3D7003").text.count('name="job"') == 1


def test_an_id_is_found_in_whatever_state_it_is(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED)
    page = root.get(f"{BASE}jobs/dead/?q={id}").text
    assert "This is the id of a job that is Scheduled" in page


def test_errors_are_grouped_by_what_went_wrong(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    response = root.get(f"{BASE}jobs/dead/?group=1")
    found = [(group.count, group.error_type) for group, _ in response.context["groups"]]
    assert found == [(6, "TimeoutError"), (4, "shop.errors.Declined")]
    url = response.context["groups"][0][1]
    assert root.get(f"{BASE}jobs/dead/{url}").text.count('name="job"') == 6


@pytest.mark.accepts("K26")
def test_a_job_shows_arguments_attempts_and_traceback(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD, call=[[7], {"email": "ada@example.com"}])
    page = root.get(f"{BASE}job/default/{id}/").text
    for text in ("order_id", "ada@example.com", "Attempt 1", "TimeoutError", "smtplib.py", "web-1:4711/1", "1 of 10"):
        assert text in page, text


def test_a_worker_shows_where_it_is_and_what_it_does(console_store: Store, filler: Filler, root: Client) -> None:
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    page = root.get(f"{BASE}workers/").text
    for text in ("web-1", "4711", "2 × 8", "45.8", "shop.send_receipt"):
        assert text in page, text


# -- acting --------------------------------------------------------------------


@pytest.mark.accepts("G59", "G09", "G41")
def test_a_dead_job_is_retried_and_it_is_said_and_logged(console_store: Store, filler: Filler, root: Client) -> None:
    first, second, other = (filler.make(State.DEAD) for _ in range(3))
    data = {"verb": "retry", "job": [f"default/{quote(id)}" for id in (first, second)]}
    response = root.post(f"{BASE}jobs/dead/", data, follow=True)
    assert "2 jobs were queued." in response.text
    assert [state_of(console_store, id) for id in (first, second, other)] == [State.QUEUED, State.QUEUED, State.DEAD]
    (entry,) = LogEntry.objects.all()
    assert entry.get_change_message() == f"2 jobs were queued. {first}, {second}"
    assert entry.object_repr == "default"
    assert first in root.get(f"{BASE}history/").text


@pytest.mark.accepts("G41")
@pytest.mark.parametrize("verb", ["delete", "kill"])
def test_what_cannot_be_undone_asks_first(verb: str, console_store: Store, filler: Filler, root: Client) -> None:
    state = State.SCHEDULED
    id = filler.make(state)
    data = {"verb": verb, "job": f"default/{id}"}
    response = root.post(f"{BASE}jobs/scheduled/", data)
    assert response.status_code == 200
    assert "jobs?" in response.text
    assert state_of(console_store, id) is state
    root.post(f"{BASE}jobs/scheduled/", data | {"confirmed": "1", "reason": "wrong customer"})
    assert state_of(console_store, id) is (None if verb == "delete" else State.DEAD)


def test_all_that_match_asks_first_and_then_runs_in_batches(console_store: Store, filler: Filler, root: Client) -> None:
    for _ in range(60):
        filler.make(State.DEAD)
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "scope": "all"})
    assert "60 jobs in state “Dead”." in response.text
    assert LogEntry.objects.count() == 0
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "scope": "all", "confirmed": "1"}, follow=True)
    assert "60 jobs were queued. It is complete." in response.text
    assert console_store.stats(["default"])[0].counts["dead"] == 0
    assert "60 jobs" in LogEntry.objects.get().get_change_message()


def test_the_progress_page_goes_on_by_itself(
    console_store: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 5)
    monkeypatch.setattr("django_jobs.admin.job_actions.FIRST_STRETCH", 0.0)
    monkeypatch.setattr("django_jobs.admin.bulk_pages.STRETCH", 0.0)
    for _ in range(200):
        filler.make(State.DEAD)
    page = root.post(f"{BASE}jobs/dead/", {"verb": "delete", "scope": "all", "confirmed": "1"})["Location"]
    seen = set()
    for _ in range(100):
        seen.add(root.get(page).context["operation"].moved)
        if root.get(page).context["operation"].finished:
            break
        root.post(page, {"do": "continue"})
    assert root.get(page).context["operation"].moved == 200
    assert len(seen) > 1


def test_a_job_is_rescheduled_to_a_time(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED)
    page = f"{BASE}job/default/{id}/"
    assert 'type="datetime-local"' in root.post(page, {"verb": "reschedule"}).text
    assert "Enter a valid" in root.post(page, {"verb": "reschedule", "confirmed": "1", "run_at": "soon"}).text
    root.post(page, {"verb": "reschedule", "confirmed": "1", "run_at": "2031-05-01T12:00:00"})
    info = console_store.get("default", id)
    assert info is not None
    assert info.at == 1_935_403_200_000


def test_arguments_are_edited_and_the_job_runs(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD)
    page = f"{BASE}job/default/{id}/edit/"
    assert "This is not JSON" in root.post(page, {"arguments": "["}).text
    assert "This is not JSON" in root.post(page, {"arguments": "[[NaN], {}]"}).text
    assert "Write two things" in root.post(page, {"arguments": "[1]"}).text
    assert "cannot be called" in root.post(page, {"arguments": "[[], {}]"}).text
    assert state_of(console_store, id) is State.DEAD
    assert "queued with other arguments" in root.post(page, {"arguments": "[[8], {}]"}, follow=True).text
    assert decode(id, "default", filler.claim()[0].record).args == b"[[8],{}]"


@pytest.mark.accepts("G41", "G83")
def test_a_queue_is_paused_with_a_reason_and_resumed(console_store: Store, filler: Filler, root: Client) -> None:
    page = f"{BASE}queues/default/"
    response = root.post(page, {"do": "pause", "reason": "the bank is down"}, follow=True)
    assert "Paused: default" in response.text
    assert "the bank is down" in response.text
    filler.add()
    assert filler.claim() == []
    assert "This time has passed" in root.post(page, {"do": "pause", "until": "2001-01-01T00:00"}).text
    root.post(page, {"do": "resume"})
    assert len(filler.claim()) == 1


def test_a_worker_is_told_to_stop_after_a_question(console_store: Store, root: Client) -> None:
    console_store.publish_worker("web-1:4711", worker_info(), 60_000)
    data = {"worker": "web-1:4711", "command": "stop"}
    assert "Stop this worker?" in root.post(f"{BASE}workers/", data).text
    assert console_store.publish_worker("web-1:4711", worker_info(), 60_000) == []
    root.post(f"{BASE}workers/", data | {"confirmed": "1"})
    assert console_store.publish_worker("web-1:4711", worker_info(), 60_000) == ["stop"]
    gone = root.post(f"{BASE}workers/", {"worker": "x", "command": "stop", "confirmed": "1"}, follow=True)
    assert "There is no worker x any more." in gone.text


def test_a_deleted_jobs_page_leads_to_the_list(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD)
    response = root.post(f"{BASE}job/default/{id}/", {"verb": "delete", "confirmed": "1"}, follow=True)
    assert response.redirect_chain == [(f"{BASE}jobs/dead/", 302)]
    assert "1 job was deleted." in response.text


def test_a_job_that_moved_on_is_left_alone_and_it_is_said(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.QUEUED)
    response = root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": f"default/{id}"}, follow=True)
    assert "0 jobs were queued. 1 had moved on and was left alone." in response.text
    response = root.post(f"{BASE}job/default/{id}/", {"verb": "retry"}, follow=True)
    assert "moved on meanwhile" in response.text


# -- the house -----------------------------------------------------------------


@pytest.fixture
def broken_store(memory_console: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store whose server is gone."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable("Redis at redis://db:6379/0 refuses connections.")

        def close(self) -> None:
            """Nothing was open."""

    use_store(Broken())  # type: ignore[arg-type]
    yield
    use_store(None)


@pytest.mark.accepts("K28")
def test_a_store_out_of_reach_gives_a_page_that_says_so(broken_store: None, root: Client) -> None:
    for page in PAGES:
        response = root.get(BASE + page.format(operation="x"))
        assert response.status_code == 503, page
        assert "refuses connections" in response.text
        assert "jobs doctor" in response.text
    assert root.post(f"{BASE}jobs/dead/", {"verb": "retry", "job": "a/b"}).status_code == 503
    assert root.get("/admin/").status_code == 200
    index = root.get("/admin/django_jobs/")
    assert index.status_code == 200  # it leads to tables as well, which are there
    assert "refuses connections" in index.text
    assert "archivedjob" in index.text


@override_settings(DJANGO_JOBS={"STORE": ""})
def test_a_missing_setting_gives_a_page_that_says_so(root: Client) -> None:
    use_store(None)
    response = root.get(BASE)
    assert response.status_code == 503
    assert "STORE" in response.text
    assert "STORE" in root.get("/admin/django_jobs/").text


@override_settings(ROOT_URLCONF="tests.integration.console.test_pages")
def test_a_site_of_ones_own_has_the_console_under_its_own_addresses(memory_console: Store, root: Client) -> None:
    Filler(memory_console).make(State.DEAD)
    page = root.get("/operations/django_jobs/dashboard/jobs/dead/").text
    assert "/operations/django_jobs/dashboard/job/default/" in page
    assert 'href="/admin/django_jobs' not in page


def test_django_finds_nothing_to_complain_about(memory_console: Store, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("check", fail_level="WARNING", tags=["admin", "models", "templates", "urls"])
    call_command("makemigrations", "--check", "--dry-run", "django_jobs")
    call_command("dumpdata", "django_jobs")
    assert "[]" in capsys.readouterr().out


@pytest.mark.redis
@pytest.mark.accepts("R22")
def test_with_500_queues_no_page_asks_more_than_30_times(
    make_redis_store: Callable[..., RedisStore], root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_jobs.browse import publish_snapshot

    store = make_redis_store()
    use_store(store)
    filler = Filler(store)
    for _ in range(60):
        filler.make(State.DEAD, queue="tenant-007")
    for i in range(500):
        filler.add(queue=f"tenant-{i:03}")
    assert publish_snapshot() is True
    assert publish_snapshot() is False
    for page in ("", "?period=day", "queues/", "queues/?p=25", "queues/tenant-007/", "jobs/dead/", "jobs/queued/"):
        before = commands(store)
        assert root.get(BASE + page).status_code == 200
        assert commands(store) - before <= 30, page
    assert ">500<" in root.get(BASE).text


def commands(store: RedisStore) -> int:
    """Commands the server has been sent, those inside scripts not counted."""
    return int(store.transport.command("INFO", "stats").decode().split("total_commands_processed:")[1].split()[0])
