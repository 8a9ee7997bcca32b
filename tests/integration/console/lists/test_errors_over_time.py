"""An error's own page and its small charts: how many of its jobs died when, or are due when."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client, override_settings

from django_jobs import browse
from django_jobs.browse import Match, groups
from django_jobs.core.values import State
from django_jobs.formatting import moment
from django_jobs.samples.log import COARSE
from django_jobs.stores.redis import Store
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
        assert moment(at).partition(">")[0] in page.text
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
    monkeypatch.setattr(groups, "MOST_GROUPS", 0)
    page = page_of(root, "BankError")
    assert page.context["trend"].bars == []
    assert page.text.count("not counted, because there are too many jobs or queues") >= 1
    assert "The last 24 hours: not counted" in titles(root.get(f"{DEAD}?group=1").text)[1]


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


@override_settings(TIME_ZONE="UTC")
def test_errors_of_a_stretch_of_time(dying: Store, filler: Filler, root: Client, clock: Clock) -> None:
    ago = {"from": text_of(clock.now - 6 * COARSE), "until": text_of(clock.now - 4 * COARSE)}
    page = root.get(f"{DEAD}?group=1&{urlencode(ago)}")
    ((group, url, spark),) = page.context["groups"]
    assert (group.error_type, group.count, page.context["total"]) == ("BankError", 2, 2)
    assert group.names == {"shop.send_receipt": 2}
    assert spark.says == "The last 24 hours: 3 jobs died, 2 at other times", "the chart is about the error, of any time"
    assert "from=" in url
    assert root.get(f"{DEAD}{url}").text.count('name="job"') == 2
    assert f'name="from" id="jobs-from" value="{ago["from"]}"' in page.text
    for one in ({"from": ago["until"]}, {"until": ago["from"]}):
        counts = [group.count for group, _, _ in root.get(f"{DEAD}?group=1&{urlencode(one)}").context["groups"]]
        assert counts == ([1, 1] if "from" in one else [2])
    nothing = root.get(f"{DEAD}?group=1&{urlencode({'from': text_of(clock.now + COARSE)})}")
    assert "No jobs match." in nothing.text
    assert root.get(f"{DEAD}?group=1&from=nonsense").status_code == 400


@override_settings(TIME_ZONE="UTC")
def test_an_action_on_an_error_of_a_stretch_of_time_takes_only_its_jobs(
    dying: Store, root: Client, clock: Clock
) -> None:
    query = urlencode({"group": 1, "from": text_of(clock.now - 6 * COARSE), "until": text_of(clock.now - 4 * COARSE)})
    ((group, url, _),) = root.get(f"{DEAD}?{query}").context["groups"]
    sent = {"verb": "delete", "scope": "all", "error": group.key}
    asked = root.post(f"{DEAD}{url}", sent)
    assert "2 jobs match" in asked.text
    root.post(f"{DEAD}{url}", sent | {"confirmed": "yes"})
    assert sum(each.count for each in browse.error_groups(State.DEAD, Match())) == 4


@override_settings(TIME_ZONE="UTC")
def test_errors_that_cannot_be_counted_for_a_page_are_refused_with_the_reason(
    dying: Store, root: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MOST_GROUPS", 1)
    page = root.get(f"{DEAD}?group=1&{urlencode({'from': text_of(clock.now - 80 * COARSE)})}")
    assert page.status_code == 200
    assert "The errors of this time are not counted, because there are too many" in page.text


def text_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
