"""What the pages show."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from django_jobs.core.values import Job, NewJob, State
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, fill_typical, worker_info

pytestmark = pytest.mark.django_db


@pytest.mark.accepts("G78", "G09", "K01")
def test_the_overview_says_what_needs_a_person(console_store: Store, filler: Filler, root: Client) -> None:
    filler.make(State.DEAD)
    filler.add()
    console_store.pause("default", reason="the disk is full")
    text = root.get(BASE).text
    assert "1 job of default is dead." in text
    assert "1 job is waiting, and no worker is running." in text
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
    page = root.get(f"{BASE}jobs/running/").text
    assert re.search(r"rows 4,200 of 10,000</bdi>\s*<span[^>]*><time ", page), "and when it said so"
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


def test_an_id_is_found_in_whatever_state_it_is(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED)
    page = root.get(f"{BASE}jobs/dead/?q={id}").text
    assert "A job in state “Scheduled” has this id" in page


def test_errors_are_grouped_by_what_went_wrong(console_store: Store, root: Client) -> None:
    fill_typical(console_store)
    response = root.get(f"{BASE}jobs/dead/?group=1")
    found = [(group.count, group.error_type) for group, _, _ in response.context["groups"]]
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


@pytest.mark.parametrize("error", ["", "  ", "no such order ", "x" * 159 + " y", "first\nsecond"])
def test_a_group_of_errors_opens_with_its_jobs(console_store: Store, filler: Filler, root: Client, error: str) -> None:
    filler.make(State.DEAD, error, "KeyError")
    filler.make(State.DEAD, "another", "ValueError")
    response = root.get(f"{BASE}jobs/dead/?group=1")
    assert len(response.context["groups"]) == 2
    for _group, url, _ in response.context["groups"]:
        assert root.get(f"{BASE}jobs/dead/{url}").text.count('name="job"') == 1


def test_a_group_of_jobs_without_any_error_opens_with_its_jobs(
    console_store: Store, filler: Filler, root: Client
) -> None:
    id = filler.add()
    claim = filler.run(id)
    console_store.bury(claim, filler.attempt(claim, "", "", ""))
    filler.make(State.DEAD, "another", "ValueError")
    for _group, url, _ in root.get(f"{BASE}jobs/dead/?group=1").context["groups"]:
        assert root.get(f"{BASE}jobs/dead/{url}").text.count('name="job"') == 1


def test_a_paused_job_type_shows_wherever_its_jobs_do(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.SCHEDULED)
    console_store.pause("default", name="shop.send_receipt", reason="no paper")
    for page in ("", "queues/", "queues/default/", f"job/default/{id}/"):
        text = root.get(BASE + page).text
        assert "paused" in text, page
        assert "shop.send_receipt" in text, page
    assert "shop.send_receipt paused" in root.get(f"{BASE}queues/").text


def test_numbers_have_separators_of_thousands(console_store: Store, filler: Filler, root: Client) -> None:
    now = console_store.now()
    jobs = [Job(f"{i:05}", "default", "shop.send_receipt", b"[[7],{}]", now) for i in range(1234)]
    for start in range(0, 1234, 500):
        console_store.enqueue("default", [NewJob(job.id, encode(job)) for job in jobs[start : start + 500]])
    for page in ("", "queues/", "queues/default/", "jobs/queued/"):
        assert "1,234" in root.get(BASE + page).text, page
        assert ">1234<" not in root.get(BASE + page).text, page


def test_the_overview_has_the_jobs_that_have_been_running_longest(console_store: Store, root: Client) -> None:
    assert "Running longest" not in root.get(BASE).text
    jobs = [{"id": f"j{n:02}", "name": f"n{n:02}", "queue": "mail", "since": 1_000_000 - n} for n in range(14)]
    jobs += [{"id": "", "name": "no id", "queue": "mail", "since": 1}, {"id": "x", "queue": "", "since": 1}, "x", None]
    console_store.publish_worker("web-1:1", worker_info(children=[{"jobs": jobs[:7]}]), 60_000)
    console_store.publish_worker("web-2:2", worker_info(children=[{"jobs": jobs[7:]}, "x", {"jobs": 7}]), 60_000)
    shown = root.get(BASE).text.partition("Running longest")[2]
    assert re.findall(r"/job/mail/(j\d\d)/", shown) == [f"j{n:02}" for n in range(13, 3, -1)]
    assert "no id" not in shown


def test_ages_are_by_the_clock_of_the_store(console_store: Store, filler: Filler, root: Client, clock: Clock) -> None:
    filler.make(State.DEAD)
    clock.advance(3 * 3_600_000)
    assert "3\xa0hours ago</time>" in root.get(f"{BASE}jobs/dead/").text


def test_a_damaged_queue_is_left_out_of_the_list_of_queues_and_named(
    console_store: Store, filler: Filler, root: Client
) -> None:
    filler.add()
    filler.add(queue="mail")
    key = console_store.keys.of("mail")["queued"]
    console_store.transport.command("DEL", key)
    console_store.transport.command("SET", key, "junk")
    page = root.get(f"{BASE}queues/")
    assert page.status_code == 200
    assert [row["stats"].queue for row in page.context["rows"]] == ["default"]
    assert "Not counted, because their keys are damaged" in page.text
    one = root.get(f"{BASE}queues/mail/")
    assert (one.status_code, "cannot be reached" in one.text) == (503, False)
    assert "The job store has damaged data" in one.text
