"""An error's own page and its small charts: how many of its jobs died when, or are due when."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client, override_settings

from django_jobs import browse
from django_jobs.browse import Match, groups
from django_jobs.core.values import State
from django_jobs.formatting import moment
from django_jobs.samples.log import COARSE
from django_jobs.stores.contract.store import Store
from tests.conftest import Clock
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, fill_hostile

pytestmark = pytest.mark.django_db

DEAD = f"{BASE}jobs/dead/"


@pytest.fixture
def dying(console_store: Store, filler: Filler, clock: Clock) -> Store:
    """Three days ago 2 jobs died of one error; 5 hours ago 3, of which one was deleted; now 1, and 1 of another."""
    clock.now -= clock.now % COARSE
    for _ in range(2):
        filler.make(State.DEAD, "no bank 7", "BankError")
    clock.advance(67 * COARSE)
    ids = [filler.make(State.DEAD, "no bank 7", "BankError") for _ in range(3)]
    console_store.delete("default", ids[:1])
    clock.advance(5 * COARSE)
    filler.make(State.DEAD, "no bank 8", "BankError")
    filler.make(State.DEAD, "other", "OtherError")
    return console_store


def page_of(root: Client, error: str, state: str = "dead", **query: str) -> Any:
    """Open an error from the page that groups by error."""
    for group, url, _ in root.get(f"{BASE}jobs/{state}/?group=1").context["groups"]:
        if group.error_type == error:
            return root.get(f"{BASE}jobs/{state}/{url}&{urlencode(query)}")
    raise AssertionError(error)


def titles(text: str) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", text)


@override_settings(TIME_ZONE="UTC")
def test_the_page_of_an_error_shows_when_its_jobs_died(dying: Store, root: Client, clock: Clock) -> None:
    page = page_of(root, "BankError")
    assert [bar.says.partition(": ")[2] for bar in page.context["trend"].bars] == ["2 jobs died", "1 job died"]
    assert [text for _, text in page.context["trend"].sums] == ["3 jobs died", "2 at other times"]
    assert "The last 24 hours" in page.text
    assert "count the jobs that are dead now" in page.text
    assert "no bank" in page.text
    group = browse.error_groups(State.DEAD, Match())[0]
    assert (group.last - group.first) == 72 * COARSE
    for at in (group.first, group.last):
        assert moment(at) in page.text
    sums = {period: page_of(root, "BankError", period=period).context["trend"].sums for period in ("hour", "week")}
    assert [text for _, text in sums["hour"]] == ["1 job died", "4 at other times"]
    assert [text for _, text in sums["week"]] == ["5 jobs died", "0 at other times"]


def test_the_switch_keeps_the_filters(dying: Store, root: Client) -> None:
    page = page_of(root, "BankError", queue="default")
    (address,) = re.findall(r'href="(\?period=week[^"]*)"', page.text)
    again = root.get(f"{DEAD}{address.replace('&amp;', '&')}")
    assert again.context["match"].queue == "default"
    assert again.context["one_error"].count == 5
    assert again.text.count('name="job"') == 5


def test_each_error_has_a_small_chart_of_24_hours(dying: Store, root: Client) -> None:
    page = root.get(f"{DEAD}?group=1")
    says = [spark.says for _, _, spark in page.context["groups"]]
    assert says == [
        "The last 24 hours: 3 jobs died, 2 at other times",
        "The last 24 hours: 1 job died, 0 at other times",
    ]
    assert set(says) <= set(titles(page.text))
    kind = root.get(f"{BASE}types/shop.send_receipt/")
    assert set(says) <= set(titles(kind.text))
    assert "The small charts count the jobs that are dead now" in kind.text


def test_jobs_that_wait_for_a_retry_are_shown_by_the_time_at_which_they_are_due(
    console_store: Store, filler: Filler, root: Client
) -> None:
    filler.make(State.RETRY, "no bank", "BankError")
    page = page_of(root, "BankError", "retry", period="week")
    assert [text for _, text in page.context["trend"].sums] == ["1 job is due", "0 at other times"]
    assert "The next 7 days" in page.text
    assert "by the time at which they are due" in page.text


def test_what_is_too_much_to_count_is_said_and_not_guessed(
    dying: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.DEAD, "no bank 9", "BankError", queue="mail")
    for name, most in (("MOST_JOBS", 2), ("MOST_GROUPS", 0)):
        monkeypatch.setattr(groups, name, most)
        page = page_of(root, "BankError")
        assert page.context["trend"].bars == []
        assert page.text.count("not counted, because there are too many jobs or queues") >= 1
        assert "The last 24 hours: not counted" in titles(root.get(f"{DEAD}?group=1").text)[1]
        monkeypatch.undo()


def test_a_reader_without_arguments_sees_the_chart_and_not_the_error(
    dying: Store, filler: Filler, person: Callable[..., Client]
) -> None:
    client = person("view_jobs")
    filler.make(State.DEAD, "card refused for secret-word", "LookupError", name="shop.charge_card",
                call=[[1], {"card_number": "secret-word"}])  # fmt: skip
    page = client.get(f"{DEAD}?group=1")
    assert all(spark.bars for _, _, spark in page.context["groups"])
    for _, url, _ in page.context["groups"]:
        one = client.get(f"{DEAD}{url}")
        assert one.context["trend"].bars
        assert "secret-word" not in one.text


def test_hostile_errors_stay_text_on_their_page(console_store: Store, root: Client) -> None:
    fill_hostile(console_store)
    for state in ("dead", "retry"):
        for _, url, _ in root.get(f"{BASE}jobs/{state}/?group=1").context["groups"]:
            page = root.get(f"{BASE}jobs/{state}/{url}")
            assert page.status_code == 200
            assert "<script>alert" not in page.text
