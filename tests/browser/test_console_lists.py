"""Lists of jobs in a browser: choose a time with its own field, turn the order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def ids_of(page: Page) -> list[str]:
    return [each.get_attribute("value").partition("/")[2] for each in page.locator('input[name="job"]').all()]  # type: ignore[union-attr]


def test_a_time_is_chosen_with_the_browsers_own_field(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    runs_in = {filler.make(State.SCHEDULED, run_in=hours * 3_600_000): hours for hours in (1, 3, 5)}
    first, second, _third = runs_in
    page = open_page("jobs/scheduled/")
    assert ids_of(page) == list(runs_in)
    expect(page.locator("#jobs-from")).to_be_hidden()
    page.get_by_text("Runs at").first.click()
    now = timezone.localtime().replace(second=7)  # a field shows no seconds that are 0
    page.locator("#jobs-from").fill((now + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S"))
    page.locator("#jobs-until").fill((now + timedelta(hours=4)).strftime("%Y-%m-%dT%H:%M:%S"))
    with page.expect_navigation():
        page.get_by_role("button", name="Filter").click()
    assert ids_of(page) == [second]
    expect(page.locator("#jobs-from")).to_be_visible()
    assert page.locator("#jobs-from").input_value() == (now + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S")
    page.get_by_label("all matching jobs").check()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("1 job matches, of 3 in state “Scheduled”.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("1 job was cancelled. It is complete.")).to_be_visible()
    assert console_store.get("default", first).state is State.SCHEDULED  # type: ignore[union-attr]


def test_the_order_is_turned_on_a_phone(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    ids = [filler.make(State.SCHEDULED, run_in=hours * 3_600_000) for hours in (1, 2, 3)]
    page = open_page("jobs/scheduled/", "phone")
    assert ids_of(page) == ids
    link = page.get_by_role("link", name="Runs at").locator("visible=true")
    with page.expect_navigation():
        link.click()
    assert ids_of(page) == ids[::-1]
    assert "order=desc" in page.url
    with page.expect_navigation():
        link.click()
    assert ids_of(page) == ids
    assert "order" not in page.url


def test_the_queues_are_sorted_by_a_number_on_a_phone(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    for queue, number in (("few", 1), ("many", 3), ("some", 2)):
        for _ in range(number):
            filler.make(State.DEAD, queue=queue)
    page = open_page("queues/", "phone")
    rows = page.locator("#jobs-live tbody th bdi")
    with page.expect_navigation():
        page.locator("#jobs-live").get_by_role("link", name="Dead", exact=True).locator("visible=true").click()
    assert rows.all_text_contents()[:3] == ["many", "some", "few"]
    with page.expect_navigation():
        page.locator("#jobs-live").get_by_role("link", name="Dead", exact=True).locator("visible=true").click()
    assert rows.all_text_contents()[-3:] == ["few", "some", "many"]
