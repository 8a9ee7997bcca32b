"""The page of a job type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.utils import quote as quoted
from django.test import Client

from django_jobs import browse
from django_jobs.admin.pages import types
from django_jobs.core.times import added, read_slots, slots_of
from django_jobs.core.values import Completed, State
from django_jobs.models import Schedule
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.console.conftest import BASE
from tests.support.console_data import Filler, worker_info

pytestmark = pytest.mark.django_db

PAGE = f"{BASE}types/shop.send_receipt/"


def test_it_has_the_totals_of_each_queue_and_of_one(console_store: Store, filler: Filler, root: Client) -> None:
    for queue, dead in (("mail", 1), ("default", 3), ("posts", 0)):
        filler.make(State.SUCCEEDED, queue=queue)
        for _ in range(dead):
            filler.make(State.DEAD, queue=queue)
    filler.make(State.DEAD, name="shop.charge_card", queue="cards")
    text = root.get(PAGE).text
    rows = re.findall(r'<tr><th scope="row"><a href="[^"]*/queues/(\w+)/">(.*?)</tr>', text, re.DOTALL)
    numbers = {queue: re.findall(r">\(?([\d.,]+(?: %)?)[ <)]", row) for queue, row in rows}
    assert numbers == {
        "default": ["4", "1", "3", "75.0 %", "3"],
        "mail": ["2", "1", "1", "50.0 %", "1"],
        "posts": ["1", "1", "0", "0.0 %", "0"],
    }
    assert re.findall(r"/jobs/dead/\?name=shop.send_receipt\">.*?</span> (\d+)</a>", text) == ["4"]
    one = root.get(f"{PAGE}?queue=mail").text
    assert "/jobs/dead/?queue=mail&amp;name=shop.send_receipt" in one
    assert "/queues/default/" not in one
    assert root.get(f"{PAGE}?queue=nowhere").status_code == 404


def test_errors_have_the_first_and_the_last_time_and_a_link_to_their_jobs(
    console_store: Store, filler: Filler, root: Client, clock: Any
) -> None:
    filler.make(State.DEAD, "order 7 is unknown", "shop.errors.Unknown")
    clock.advance(7_200_000)
    filler.make(State.DEAD, "order 8 is unknown", "shop.errors.Unknown")
    filler.make(State.RETRY)
    filler.make(State.DEAD, "declined", "shop.errors.Declined", name="shop.charge_card")
    text = root.get(PAGE).text
    assert "Declined" not in text
    assert "order … is unknown" in text
    (link,) = re.findall(r'<a href="([^"]*/jobs/dead/\?name=shop.send_receipt&amp;error=\w+)"', text)
    assert root.get(link.replace("&amp;", "&")).text.count('name="job"') == 2
    assert "/jobs/retry/?name=shop.send_receipt&amp;error=" in text
    row = text.partition("order … is unknown")[2].partition("</tr>")[0]
    first, last = re.findall(r'<time datetime="([^"]+)"', row)
    assert first < last


def test_the_times_are_those_that_the_store_counts(console_store: Store, filler: Filler, root: Client) -> None:
    for run in (5, 40, 40, 90_000):
        filler.add()
        (claim,) = filler.claim()
        console_store.complete("default", [Completed(claim, b"null", run, "shop.send_receipt", wait_ms=3)])
    text = root.get(PAGE).text.partition('id="jobs-times"')[2].partition("Run time")[2]
    assert "4 attempts, " in text
    assert "half up to 50 ms, 95 % up to 5 min" in text
    assert re.findall(r"<title>([^<]*)</title>", text.partition("</svg>")[0]) == [
        "up to 10 ms: 1", "up to 50 ms: 2", "up to 5 min 0 s: 1"
    ]  # fmt: skip


def test_a_distribution_says_within_which_time_half_and_most_were() -> None:
    ends = [("a", -1, ms) for ms in [5] * 60 + [400] * 34 + [9_000_000] * 6]
    chart = types.distribution("Run time", "good", read_slots(added([], slots_of(ends)["a"])).running)
    assert [bar.says for bar in chart.bars] == ["up to 10 ms: 60", "up to 500 ms: 34", "over 2 h 0 min: 6"]
    assert chart.sums[1] == ("good", "half up to 10 ms, 95 % over 2 h 0 min")
    assert types.distribution("Run time", "good", read_slots([]).running).empty


def test_limits_pauses_and_schedules_are_on_it(console_store: Store, filler: Filler, root: Client) -> None:
    filler.add()
    filler.add(name="shop.charge_card", queue="cards")
    Schedule.objects.create(name="nightly", job="shop.send_receipt", cron="0 3 * * *")
    console_store.pause("default", name="shop.send_receipt", reason="no paper")
    text = root.get(PAGE).text
    assert "no paper" in text
    assert "nightly" in text
    assert "Max. attempts" in text
    other = root.get(f"{BASE}types/shop.charge_card/").text
    assert "nightly" not in other
    assert "card_number" in other
    assert 'name="job_type"' not in other
    page = root.post(f"{BASE}queues/cards/", {"do": "pause", "for": "1h", "name": "shop.charge_card"}, follow=True)
    assert "Paused until" in page.text
    assert console_store.stats(["cards"])[0].paused_types["shop.charge_card"].until


@pytest.mark.parametrize("name", ["nobody.knows", "a/b c?#%", "<script>alert(1)</script>", "..", "x" * 200])
def test_a_type_that_this_process_does_not_know_has_a_page(
    name: str, console_store: Store, filler: Filler, root: Client
) -> None:
    id = filler.make(State.DEAD, name=name)
    (address,) = set(re.findall(r'href="([^"]*/types/[^"]*)"', root.get(f"{BASE}job/default/{id}/").text))
    response = root.get(address)
    assert response.status_code == 200
    assert "This process has no job of that name." in response.text
    assert "<script>alert" not in response.text
    assert f"/jobs/dead/?name={quote(name, safe='')}" in response.text.replace("+", "%20")


@pytest.mark.parametrize(
    "page", ["job/default/{id}/", "jobs/dead/?group=1", "jobs/dead/?name=shop.send_receipt", "queues/default/"]
)
def test_links_lead_to_it(page: str, console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD)
    assert f'href="{BASE}types/{quoted("shop.send_receipt")}/"' in root.get(BASE + page.format(id=id)).text


def test_a_name_that_no_job_can_have_has_no_link(console_store: Store, filler: Filler, root: Client) -> None:
    id = filler.make(State.DEAD, name="n" * 5_000)
    assert "/types/" not in root.get(f"{BASE}job/default/{id}/").text


def test_without_the_permission_errors_show_no_arguments(
    console_store: Store, filler: Filler, person: Callable[..., Client]
) -> None:
    filler.make(State.DEAD, "order 'bob@example.com' of bob is unknown", call=[[1], {"email": "of bob"}])
    text = person("view_jobs").get(PAGE).text
    assert "of bob" not in text
    assert 'name="for"' not in text


def many_queues(settings: Any, store: Store, number: int) -> list[str]:
    names = ["default", *(f"tenant-{n:02}" for n in range(number))]
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {name: {} for name in names}}
    use_store(store)
    return names


def test_queues_that_are_left_out_of_its_numbers_are_named(
    console_store: Store, filler: Filler, root: Client, settings: Any
) -> None:
    for queue in many_queues(settings, console_store, 4):
        filler.make(State.SUCCEEDED, queue=queue)
    text = root.get(PAGE).text
    left = text.partition("More queues:")[2].partition("</p>")[0]
    assert len(re.findall(r"\?queue=[\w-]+", left)) == 2
    assert "The totals, charts and run times are without them." in left
    assert "without them" not in root.get(f"{PAGE}?queue=tenant-01").text


def test_it_does_not_say_that_no_queue_has_counted_what_it_has_not_read(
    console_store: Store, filler: Filler, root: Client, settings: Any
) -> None:
    """The numbers that workers publish of many queues have no totals of job types."""
    many_queues(settings, console_store, 30)
    filler.make(State.SUCCEEDED, name="shop.unknown_here", queue="tenant-07")
    page = f"{BASE}types/{quoted('shop.unknown_here')}/"
    browse.publish_snapshot()
    text = root.get(page).text
    assert "No queue has counted" not in text
    assert "Whether 31 other queues have counted jobs of this type was not read" in text
    assert "was not read" not in root.get(f"{page}?queue=tenant-07").text
    many_queues(settings, console_store, 3)
    assert "was not read" not in root.get(page).text


def test_errors_and_schedules_that_are_not_shown_are_counted(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for n in range(13):
        filler.make(State.DEAD, "no", f"shop.errors.E{n}")
    for n in range(22):
        Schedule.objects.create(name=f"nightly-{n}", job="shop.send_receipt", cron="0 3 * * *")
    text = root.get(PAGE).text
    more = re.findall(r'<a href="([^"]*)">([^<]*and \d+ more)</a>', text)
    assert [said for _, said in more] == ["Dead: and 3 more", "and 2 more"]
    assert root.get(more[0][0].replace("&amp;", "&")).text.count("shop.errors.E") >= 13


def test_the_page_of_a_queue_says_how_many_types_it_does_not_show(
    console_store: Store, filler: Filler, root: Client
) -> None:
    for n in range(52):
        filler.add(name=f"shop.n{n}")
    assert "2 more job types are not shown." in root.get(f"{BASE}queues/default/").text


def test_a_worker_shows_the_jobs_that_run_longest_and_how_many_more_there_are(
    console_store: Store, root: Client
) -> None:
    jobs = [{"id": str(n), "queue": "default", "name": f"shop.n{n}", "since": 10**12 - n} for n in range(20)]
    console_store.publish_worker("web-1:4711", worker_info(children=[{"jobs": jobs}]), 60_000)
    text = root.get(f"{BASE}workers/").text
    assert "shop.n19<" in text
    assert "shop.n0<" not in text
    assert "and 8 more" in text
