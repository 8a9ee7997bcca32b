"""What is paused: seen in one place with who, since when, until when, why and what waits, and resumed from there."""

from __future__ import annotations

import html
import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from django_jobs import operations, schedules
from django_jobs.core.values import State
from django_jobs.models import AuditEntry, Schedule
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db
PAGE = f"{BASE}paused/"


def listed() -> list[dict[str, Any]]:
    out = StringIO()
    call_command("jobs", "paused", "--json", stdout=out)
    found: list[dict[str, Any]] = json.loads(out.getvalue())
    return found


@pytest.fixture
def paused(filler: Filler, root: Client) -> Schedule:
    """A queue, a job type and a schedule, paused in the order of this sentence."""
    for n in range(3):
        filler.add(queue="mail", call=[[n], {}])
    filler.add(queue="default")
    filler.add("shop.charge_card", [[1, "4111"], {}], queue="default")
    operations.pause("mail", reason="the bank is away", by="ann", until=filler.store.now() + 3_600_000)
    operations.pause("default", name="shop.charge_card", by="bob")
    row = Schedule.objects.create(name="nightly", job="shop.send_receipt", cron="0 3 * * *", args=[1])
    (entry,) = schedules.database_entries()
    root.post(f"{BASE}schedules/", {"do": "pause", "schedule": entry.id})
    return row


@pytest.mark.usefixtures("paused")
def test_all_that_is_paused_is_listed_with_who_and_why_and_what_waits() -> None:
    by_kind = {each["kind"]: each for each in listed()}
    queue, kind, schedule = by_kind["queue"], by_kind["job type"], by_kind["schedule"]
    assert (queue["name"], queue["by"], queue["reason"], queue["waiting"]) == ("mail", "ann", "the bank is away", 3)
    assert queue["until"] > queue["since"]
    assert (kind["name"], kind["queue"], kind["by"], kind["waiting"]) == ("shop.charge_card", "default", "bob", 1)
    assert (kind["until"], kind["or_more"]) == (None, False)
    assert (schedule["by"], schedule["waiting"], schedule["queue"]) == ("root", None, None)


@pytest.mark.usefixtures("paused")
def test_each_is_resumed_from_the_page(root: Client) -> None:
    form_of = re.compile(r'<form method="post" action="([^"]+)" class="jobs-inline">(.*?)</form>', re.DOTALL)
    while forms := form_of.findall(page(root)):
        address, form = forms[0]
        data = dict(re.findall(r'name="(back|schedule|name)" value="([^"]*)"', form))
        before = len(listed())
        answer = root.post(html.unescape(address), data | {"do": "resume"})
        assert answer["Location"] == PAGE
        assert len(listed()) == before - 1
    assert "Nothing is paused." in page(root)
    assert AuditEntry.objects.filter(verb="resume").count() == 3


def page(client: Client) -> str:
    return client.get(PAGE).text


@pytest.mark.usefixtures("paused")
def test_who_may_not_resume_has_no_button(person: Any) -> None:
    text = page(person("view_jobs"))
    assert "the bank is away" in text
    assert 'value="resume"' not in text


@pytest.mark.usefixtures("paused")
def test_the_page_of_a_queue_says_who_paused_it(root: Client) -> None:
    text = root.get(f"{BASE}queues/mail/").text
    assert "By ann, since" in text
    assert "the bank is away" in text
    assert "bob" in root.get(f"{BASE}queues/default/").text


def test_a_worker_that_is_told_to_be_quiet_is_not_said_to_stop(console_store: Store, root: Client) -> None:
    console_store.publish_worker("web-1:4711", {"state": "running", "host": "web-1"}, 60_000)
    address = f"{BASE}workers/"
    assert 'name="command" value="quiet"' in root.get(address).text
    asked = root.post(address, {"worker": "web-1:4711", "command": "quiet"}).text
    assert "it keeps running" in asked
    assert 'value="stop"' not in asked
    said = root.post(address, {"worker": "web-1:4711", "command": "quiet", "confirmed": "1"}, follow=True).text
    assert "was told to be quiet" in said
    assert "told to stop" not in said
    assert "was told to be quiet" in root.get(f"{BASE}history/").text


@pytest.mark.usefixtures("paused")
def test_what_waits_is_counted_where_a_worker_has_put_it(filler: Filler) -> None:
    filler.claim(limit=10)
    assert filler.store.stats(["default"])[0].counts[State.BLOCKED] == 1
    (kind,) = (each for each in listed() if each["kind"] == "job type")
    assert kind["waiting"] == 1


def test_many_pauses_come_page_by_page(filler: Filler, root: Client) -> None:
    for n in range(120):
        operations.pause("default", name=f"shop.type_{n:03}")
    shown = [set(re.findall(r"shop\.type_\d+", root.get(PAGE, {"p": p}).text)) for p in (1, 2)]
    assert ([len(each) for each in shown], shown[0] & shown[1]) == ([100, 20], set())
    assert "120 pauses" in root.get(PAGE, {"p": 2}).text
    for odd in ("0", "x", "9" * 30, "³"):
        assert root.get(PAGE, {"p": odd}).status_code == 200
