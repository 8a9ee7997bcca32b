"""Jobs by their tags: lists, search, links, bulk actions, and the command."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from django_jobs.core.values import Job, Options, State
from django_jobs.operations import bulk, searching
from django_jobs.serialization.record import encode, tags_of
from django_jobs.stores.contract.store import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = pytest.mark.django_db


def tagged(filler: Filler, state: State, tags: str, id: str, *, name: str = "shop.send_receipt", **more: Any) -> str:
    queue = more.get("queue", "default")
    record = encode(Job(id, queue, name, b"[[7],{}]", filler.store.now(), Options(max_attempts=10, tags=tags)))
    return filler.make(state, id=id, record=record, **more)


@pytest.fixture
def some(filler: Filler) -> None:
    """Two dead and two queued jobs of a customer, and as many of others."""
    tagged(filler, State.DEAD, "billing customer:42", "d1")
    tagged(filler, State.DEAD, "customer:42", "d2", queue="mail")
    tagged(filler, State.DEAD, "customer:4", "d3", name="shop.charge_card")
    tagged(filler, State.DEAD, "", "d4")
    tagged(filler, State.QUEUED, "customer:42", "q1")
    tagged(filler, State.QUEUED, "customer:42", "q2", queue="mail")
    tagged(filler, State.QUEUED, "billing", "q3")


def shown(client: Client, state: str, **query: str) -> set[str]:
    response = client.get(f"{BASE}jobs/{state}/?{urlencode(query)}")
    assert response.status_code == 200, response.text
    return set(re.findall(r'name="job" value="[^/"]+/([^"]+)"', response.text))


def jobs(*words: str) -> str:
    out = StringIO()
    call_command("jobs", *words, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("some")
def test_a_list_shows_the_jobs_with_a_tag(root: Client) -> None:
    assert shown(root, "dead", tag="customer:42") == {"d1", "d2"}
    assert shown(root, "queued", tag="customer:42") == {"q1", "q2"}
    assert shown(root, "dead", tag="customer:4") == {"d3"}
    assert shown(root, "dead", tag="customer") == set()
    assert shown(root, "dead", tag="customer:42", queue="mail") == {"d2"}
    assert shown(root, "dead", tag="billing", name="shop.send_receipt") == {"d1"}
    assert shown(root, "dead", tag="billing", q="d1") == {"d1"}
    assert shown(root, "dead", tag="customer:42", q="timed out") == {"d1", "d2"}


@pytest.mark.usefixtures("some")
def test_a_list_says_how_far_it_has_looked(root: Client, monkeypatch: pytest.MonkeyPatch, filler: Filler) -> None:
    for n in range(6):
        tagged(filler, State.QUEUED, "", f"more-{n}")
    search_in_small_steps(monkeypatch)
    text = root.get(f"{BASE}jobs/queued/?tag=customer%3A42").text
    assert "of 9 jobs were checked" in text
    while searching.tick(60):
        pass
    text = root.get(f"{BASE}jobs/queued/?tag=customer%3A42").text
    assert "2 matches. 9 of 9 jobs were checked." in text


@pytest.mark.usefixtures("some")
def test_the_search_over_all_states_finds_a_tag(root: Client) -> None:
    text = root.get(f"{BASE}search/?q=customer%3A42").text
    assert set(re.findall(r"<code class=\"jobs-quiet\">([dq]\d)</code>", text)) == {"d1", "d2", "q1", "q2"}


@pytest.mark.usefixtures("some")
def test_the_tags_of_a_job_lead_to_the_list_of_its_state(root: Client) -> None:
    for page in ("job/default/d1/", "jobs/dead/", "search/?q=customer%3A42"):
        text = root.get(f"{BASE}{page}").text
        assert f'href="{BASE}jobs/dead/?tag=customer%3A42"' in text, page
    assert "jobs-tags" not in root.get(f"{BASE}job/default/d4/").text


@pytest.mark.usefixtures("some")
def test_all_that_have_a_tag_are_retried_and_no_others(root: Client, console_store: Store) -> None:
    address = f"{BASE}jobs/dead/?tag=customer%3A42"
    asked = root.post(address, {"verb": "retry", "scope": "all"})
    assert "Tag: <bdi>customer:42</bdi>" in asked.text
    root.post(address, {"verb": "retry", "scope": "all", "confirmed": "1"})
    (operation,) = bulk.operations_list()
    assert (operation.match.tag, operation.moved, operation.finished > 0) == ("customer:42", 2, True)
    assert shown(root, "dead") == {"d3", "d4"}
    assert "customer:42" in root.get(f"{BASE}bulk/{operation.id}/").text


@pytest.mark.usefixtures("some")
def test_a_filter_by_tag_can_be_saved(root: Client) -> None:
    root.post(f"{BASE}jobs/dead/?tag=customer%3A42", {"do": "save-filter", "name": "Ada"})
    assert 'href="?tag=customer%3A42"' in root.get(f"{BASE}jobs/dead/").text


@pytest.mark.usefixtures("some")
def test_the_command_lists_shows_retries_and_deletes_by_tag(console_store: Store) -> None:
    assert {each["id"] for each in json.loads(jobs("list", "dead", "--tag", "customer:42", "--json"))} == {"d1", "d2"}
    assert json.loads(jobs("show", "d1", "--json"))["tags"] == ["billing", "customer:42"]
    assert "customer:42" in jobs("show", "d1")
    jobs("retry", "--all", "--tag", "customer:42")
    assert {info.id for info in console_store.page("default", State.DEAD)} == {"d3", "d4"}
    assert console_store.page("mail", State.DEAD) == []
    jobs("delete", "--all", "dead", "--tag", "customer:4")
    assert {info.id for info in console_store.page("default", State.DEAD)} == {"d4"}
    with pytest.raises(CommandError, match="--tag chooses among the jobs of a state"):
        jobs("retry", "d4", "--tag", "billing")


def test_the_command_enqueues_with_tags(console_store: Store) -> None:
    id = json.loads(jobs("enqueue", "shop.send_receipt", "--args", "[7]", "--tag", "a", "--tag", "b", "--json"))["id"]
    assert tags_of(console_store.get("default", id).record) == ("a", "b")  # type: ignore[union-attr]
    with pytest.raises(CommandError, match="'a b' cannot be used"):
        jobs("enqueue", "shop.send_receipt", "--args", "[7]", "--tag", "a b")
