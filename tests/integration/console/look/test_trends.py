"""Charts of trends: a queue's week, the periods of a job type, and the small charts of the lists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client, override_settings

from django_jobs.admin.pages import trends
from django_jobs.browse import trends as all_trends
from django_jobs.browse.trends import Trend
from django_jobs.core.values import State
from django_jobs.samples.chart import Stretch
from django_jobs.samples.log import COARSE, FINE, NOTHING
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, fill_hostile

pytestmark = pytest.mark.django_db

QUEUE, TYPE = f"{BASE}queues/default/", f"{BASE}types/shop.send_receipt/"
NOW = 500_000 * COARSE


def week(*counts: tuple[int, int, int] | None) -> Trend:
    """A trend that ends with these hours."""
    given = [None] * (168 - len(counts)) + list(counts)
    return Trend(
        "week", COARSE, [Stretch(NOW + n * COARSE, NOW + (n + 1) * COARSE, each) for n, each in enumerate(given)]
    )


@pytest.fixture
def busy(console_store: Store, filler: Filler, clock: Any) -> Store:
    """Three hours with samples, then two without a worker."""
    clock.now -= clock.now % COARSE
    console_store.sample(["default"])
    for dead in (1, 0, 2):
        filler.make(State.SUCCEEDED)
        for _ in range(dead):
            filler.make(State.DEAD)
        clock.advance(COARSE)
        console_store.sample(["default"])
    for _ in range(4):
        filler.make(State.SUCCEEDED)
    clock.advance(2 * COARSE)
    return console_store


def titles(text: str, chart: str) -> list[str]:
    """What the bars of one chart say."""
    return re.findall(r"<title>([^<]*)</title>", text.partition(f">{chart}<")[2].partition("</svg>")[0])


@pytest.mark.parametrize("page", [QUEUE, TYPE])
def test_a_week_is_shown_by_hours(page: str, busy: Store, root: Client) -> None:
    text = root.get(f"{page}?period=week").text
    assert "The last 7 days" in text
    assert "7 jobs succeeded" in text
    said = titles(text, "Throughput per hour")
    assert said[0].endswith(": not known")
    assert said[-1].endswith("4 succeeded, 0 failed, 0 died, no sample in between")
    failures = [each.partition(": ")[2] for each in titles(text, "Failures per hour") if "known" not in each]
    assert failures == ["1 succeeded, 1 failed, 1 died", "1 succeeded, 2 failed, 2 died"]
    assert len(titles(text, "Dead per hour")) == 3
    assert "not known for 6 d 18 h" in text


def test_the_overview_has_a_week_of_all_queues(busy: Store, filler: Filler, root: Client) -> None:
    """A queue in which nothing was ever counted takes nothing away; one without a sample makes the sum a part."""
    filler.add(queue="mail")
    page = root.get(f"{BASE}?period=week").text
    assert "The last 7 days" in page
    assert "7 jobs succeeded" in page
    assert titles(page, "Throughput per hour")[-1].endswith("4 succeeded, 0 failed, 0 died, no sample in between")
    assert 'aria-current="true">Week' in page
    filler.make(State.SUCCEEDED, queue="bank")
    assert titles(root.get(f"{BASE}?period=week").text, "Throughput per hour")[-1].endswith(", or more")


def test_with_very_many_queues_the_overview_says_where_the_week_is(
    busy: Store, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_trends, "MOST_QUEUES", 0)
    page = root.get(f"{BASE}?period=week")
    assert page.status_code == 200
    assert "the week is not added up. It is on the page of each queue." in page.text


def test_the_page_of_a_type_has_each_period(busy: Store, root: Client) -> None:
    assert "The last 24 hours" in root.get(TYPE).text
    hour = root.get(f"{TYPE}?period=hour&queue=default").text
    assert "Throughput per 5 minutes" in hour
    assert 'href="?period=week&amp;queue=default"' in hour
    assert "The last 24 hours" in root.get(f"{TYPE}?period=century").text


def test_the_lists_have_small_charts(busy: Store, root: Client) -> None:
    for page in (f"{BASE}queues/", QUEUE):
        (small,) = re.findall(r'<svg class="jobs-spark".*?</svg>', root.get(page).text, re.DOTALL)
        assert 'role="img"' in small
        assert "the last 24 hours: 7 succeeded, 3 failed, at most 3 in an hour, not known for 18 h 0 min" in small
        assert small.count("jobs-bar-good") == 4
        assert small.count("jobs-bar-bad") == 2


def test_without_samples_the_charts_say_that_nothing_is_known(
    console_store: Store, filler: Filler, root: Client
) -> None:
    filler.make(State.SUCCEEDED)
    assert "the last 24 hours are not known" in root.get(f"{BASE}queues/").text
    assert "no data yet" in root.get(f"{QUEUE}?period=week").text
    assert "no data yet" in root.get(TYPE).text.partition('id="jobs-trend"')[2].partition("</section>")[0]


def test_hostile_names_and_numbers_have_charts(console_store: Store, root: Client, clock: Any) -> None:
    fill_hostile(console_store)
    console_store.sample(["default"])
    clock.advance(COARSE)
    text = root.get(f"{QUEUE}?period=week").text
    assert "jobs-spark" in text
    assert "<script>alert" not in text


@override_settings(LANGUAGE_CODE="de")
def test_numbers_and_coordinates_are_each_in_their_form(busy: Store, root: Client) -> None:
    text = root.get(f"{TYPE}?period=week").text
    assert "Die letzten 7 Tage" in text
    assert not re.search(r'<rect[^>]*="[\d.]*,', text)
    [chart, *_] = trends.charts(week((1_234_567, 0, 0)))
    assert chart.top == "1.234.567"


def test_one_failure_is_seen_beside_a_million_successes() -> None:
    throughput, failures, dead = trends.charts(week((1_000_000, 1, 0), NOTHING, (0, 0, 1)))
    (bad,) = [bar for bar in throughput.bars if bar.css == "bad"]
    assert bad.height >= 2
    assert min(bar.y for bar in throughput.bars) >= 0
    assert [bar.css for bar in failures.bars] == ["unknown", "bad"]
    assert [bar.css for bar in dead.bars] == ["unknown", "bad"]
    assert throughput.top == "1,000,001"


def test_bars_stay_inside_the_drawing() -> None:
    end = NOW + 12 * FINE
    trend = Trend(
        "hour", FINE, [Stretch(NOW - 50 * FINE, end - FINE, (610, 61, 0)), Stretch(end - FINE, end, (10, 0, 0))]
    )
    for chart in trends.charts(trend):
        for bar in chart.bars:
            assert bar.x >= 0
            assert bar.x + bar.width <= chart.width
            assert bar.y >= 0
    first = trends.charts(trend)[0].bars[0]
    assert (first.css, first.width > 500) == ("good jobs-bar-gap", True)
    assert "no sample in between" in first.says


def test_where_there_may_have_been_more_the_bar_says_so() -> None:
    trend = Trend("hour", FINE, [Stretch(NOW + n * FINE, NOW + (n + 1) * FINE, (1, 0, 0), n == 3) for n in range(12)])
    bars = trends.charts(trend)[0].bars
    assert [bar.says.endswith("or more") for bar in bars] == [n == 3 for n in range(12)]
    assert bars[3].css == "good jobs-bar-gap"


def test_a_queue_whose_server_is_away_is_not_known_and_the_others_are_shown(
    busy: Store, filler: Filler, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler.make(State.SUCCEEDED, queue="mail")
    read = type(busy).samples

    def without_mail(store: Any, queues: Any, *given: Any, **more: Any) -> Any:
        return {queue: each for queue, each in read(store, queues, *given, **more).items() if queue != "mail"}

    monkeypatch.setattr(type(busy), "samples", without_mail)
    text = root.get(f"{BASE}queues/").text
    assert text.count('aria-label="the last 24 hours are not known"') == 1
    assert "the last 24 hours: 7 succeeded" in text
    assert "or more" in root.get(f"{TYPE}?period=week").text
