"""The list of queues, and the job types of a queue, sorted by each of their columns."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client

from django_jobs.browse import counts
from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler

pytestmark = pytest.mark.django_db


@pytest.fixture
def queues(filler: Filler) -> list[str]:
    """Queues whose numbers are all different: q3 has 3 jobs of each state that is counted, and so on."""
    for n in (2, 0, 3, 1):
        for state in (State.SCHEDULED, State.RETRY, State.DEAD, State.RUNNING, State.QUEUED):
            for _ in range(n):
                filler.make(state, queue=f"q{n}")
        filler.store.enqueue(f"q{n}", [])
    return ["q1", "q2", "q3"]


def rows(text: str) -> list[str]:
    """The first cells of the last table of a page."""
    return re.findall(r'<th scope="row">.*?<bdi>([^<]+)</bdi>', text.rpartition("<table")[2])


def test_the_list_of_queues_is_sorted_by_each_of_its_columns(queues: list[str], root: Client) -> None:
    plain = root.get(f"{BASE}queues/").text
    links = dict(re.findall(r'<th scope="col"[^>]*><a href="([^"]*)" class="jobs-sort">([^<]*)</a>', plain))
    assert list(links.values()) == [
        "Queue", "Latency", "Queued", "Running", "Scheduled", "Retry", "Blocked", "Dead", "Max. running", "Max. length",
    ]  # fmt: skip
    assert "aria-sort" not in plain
    for href, label in links.items():
        text = root.get(f"{BASE}queues/{unescape(href)}").text
        (way,) = re.findall(r'aria-sort="(\w+)"', text)
        assert way == ("ascending" if label == "Queue" else "descending")
        found = [name for name in rows(text) if name in queues]
        if label in ("Queued", "Running", "Scheduled", "Retry", "Dead"):
            assert found == queues[::-1], label
        (back,) = re.findall(r'aria-sort="\w+"><a href="([^"]*)"', text.replace(' class="jobs-num"', ""))
        turned = [name for name in rows(root.get(f"{BASE}queues/{unescape(back)}").text) if name in queues]
        if label in ("Queue", "Queued", "Running", "Scheduled", "Retry", "Dead"):
            assert turned == found[::-1], label


def test_the_order_goes_on_over_pages_and_with_the_search(filler: Filler, root: Client) -> None:
    for n in range(25):
        for _ in range(n + 1):
            filler.make(State.SCHEDULED, queue=f"tenant-{n:02}")
    wanted = [f"tenant-{n:02}" for n in range(24, -1, -1)]
    text = root.get(f"{BASE}queues/?q=tenant&sort=scheduled&order=desc").text
    found = rows(text)
    assert 'name="sort" value="scheduled"' in text
    following = unescape(re.findall(r'<a href="(\?p=2[^"]*)"', text)[0])
    assert found + rows(root.get(f"{BASE}queues/{following}").text) == wanted


@pytest.mark.parametrize(
    "query", ["sort=nothing&order=asc", "sort=dead&order=up", "sort=dead", "order=asc", "sort=%00"]
)
def test_an_order_that_there_is_not_is_the_usual_one(queues: list[str], root: Client, query: str) -> None:
    for page in ("queues/", "queues/q1/"):
        text = root.get(f"{BASE}{page}?{query}")
        assert text.status_code == 200
        assert "aria-sort" not in text.text
        assert rows(text.text) == rows(root.get(BASE + page).text)


def test_queues_that_are_not_all_counted_cannot_be_sorted(
    queues: list[str], root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order of some would be taken for an order of all."""
    monkeypatch.setattr(counts, "LIVE_QUEUES", 1)
    monkeypatch.setattr(counts, "COUNT_FOR", 0)
    text = root.get(f"{BASE}queues/?sort=dead&order=desc").text
    assert "jobs-sort" not in text
    assert "aria-sort" not in text


def test_the_job_types_of_a_queue_are_sorted_by_each_of_their_numbers(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for n, (enqueued, died) in enumerate([(5, 0), (3, 3), (4, 2)]):
        for k in range(enqueued):
            filler.make(State.DEAD if k < died else State.SUCCEEDED, name=f"shop.job{n}", queue="q")
    for key, order, wanted in [
        ("", "", "021"), ("enqueued", "desc", "021"), ("enqueued", "asc", "120"), ("dead", "desc", "120"),
        ("failed", "asc", "021"), ("name", "asc", "012"), ("name", "desc", "210"),
    ]:  # fmt: skip
        text = root.get(f"{BASE}queues/q/?sort={key}&order={order}").text
        table = text.partition('id="jobs-types"')[2].partition("</table>")[0]
        assert re.findall(r"<bdi>shop\.job(\d)</bdi>", table) == list(wanted), (key, order)
        assert ("aria-sort" in table) is bool(key)
