"""Five questions of a bad day, each from the overview in a fresh browser, with the clicks counted by the browser.

Return in the search field counts as the click on its button that the browser makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.worker.test_worker_ends import started
from tests.integration.workers import WorkerSite
from tests.support.console_data import Filler, fill_typical, shop_jobs
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HOUR = 3_600_000
#: Counts in the browser, so that a click that a test makes in another way counts too; it outlives the pages of a tab.
COUNTER = """document.addEventListener("click", (event) => {
  if (event.isTrusted) sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1;
}, true)"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WorkerSite]:
    """Workers and the console on one embedded store."""
    made = WorkerSite(tmp_path, f"embedded:{tmp_path / 'store'}")
    yield made
    made.close()


@pytest.fixture
def console_store(site: WorkerSite) -> Iterator[Store]:
    """The store of the live server."""
    use_store(site.store)
    with shop_jobs():
        yield site.store
    use_store(None)


@pytest.fixture
def overview(console_store: Store, open_page: Callable[..., Page]) -> Callable[[], Page]:
    """Open the overview in a browser that counts clicks."""

    def open_it() -> Page:
        page = open_page("")
        page.add_init_script(COUNTER)
        page.reload()
        return page

    return open_it


def clicks(page: Page) -> int:
    return int(page.evaluate("sessionStorage.clicks || 0"))


def look_for(page: Page, text: str) -> None:
    field = page.get_by_role("searchbox", name="Search all jobs")
    field.press_sequentially(text)
    field.press("Enter")


def test_which_job_fails_since_when_and_why_and_those_are_retried(
    console_store: Store, overview: Callable[[], Page]
) -> None:
    filler = fill_typical(console_store)
    other = filler.make(State.DEAD, "declined", "shop.errors.Other", queue="mail")
    page = overview()
    page.get_by_role("link", name="jobs of default are dead").click()
    row = page.locator(".jobs-groups li").filter(has_text="Connection to")
    expect(row).to_contain_text("TimeoutError")
    expect(row).to_contain_text("shop.send_receipt × 6")
    expect(row).to_contain_text("first")
    row.get_by_role("button", name="Retry now").click()
    expect(page.get_by_text("6 jobs match, of 10 in state")).to_be_visible()
    page.get_by_role("button", name="Retry now").click()
    expect(page.get_by_text("6 jobs were queued. It is complete.")).to_be_visible()
    assert clicks(page) <= 4
    found = console_store.get("mail", other)
    assert found is not None
    assert found.state is State.DEAD


def test_a_queue_is_paused_for_an_hour(console_store: Store, overview: Callable[[], Page]) -> None:
    fill_typical(console_store)
    page = overview()
    page.get_by_role("link", name="default", exact=True).click()
    page.get_by_role("button", name="Pause default 1 h").click()
    expect(page.get_by_text("Paused until")).to_be_visible()
    assert clicks(page) <= 2
    paused = console_store.stats(["default"])[0].paused
    assert paused is not None
    assert paused.by == "ada"
    assert 0 < paused.until - console_store.now() <= HOUR


def test_what_hangs_is_killed_and_its_process_is_gone(site: WorkerSite, overview: Callable[[], Page]) -> None:
    site.pool()
    id = site.put("deaf")
    process = started(site, id)
    page = overview()
    page.locator("[aria-labelledby=jobs-longest]").get_by_role("link", name="deaf").first.click()
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("button", name="Kill").click()
    expect(page.get_by_text("1 job was moved to dead.").first).to_be_visible()
    assert clicks(page) <= 3
    wait_until(lambda: not is_alive(process.pid), "its process has ended", seconds=10)
    assert site.info(id).state is State.DEAD


def test_all_jobs_of_a_customer_in_any_state(console_store: Store, overview: Callable[[], Page]) -> None:
    filler = Filler(console_store)
    customer: dict[str, Any] = {"call": [[42], {"email": "customer-42@example.com"}]}
    states = (State.SUCCEEDED, State.DEAD, State.RETRY, State.RUNNING, State.CANCELLED, State.SCHEDULED, State.QUEUED)
    hers = {filler.make(state, queue=f"q{i}", **customer) for i, state in enumerate(states)}
    for i, state in enumerate(states):
        filler.make(state, queue=f"q{i}", call=[[7], {"email": "customer-7@example.com"}])
    page = overview()
    look_for(page, "customer-42@")
    rows = page.locator(".jobs-list tbody tr")
    expect(rows).to_have_count(len(hers))
    assert {row.locator("code").inner_text() for row in rows.all()} == hers
    for state in ("Succeeded", "Dead", "Retry", "Running", "Cancelled", "Scheduled", "Queued"):
        expect(rows.filter(has_text=state)).to_have_count(1)
    assert clicks(page) <= 1


def test_why_a_job_does_not_start(console_store: Store, overview: Callable[[], Page]) -> None:
    id = Filler(console_store).add()
    console_store.pause("default", reason="moving house", by="bob")
    page = overview()
    look_for(page, id)
    expect(page.locator("[data-cause=queue_paused]")).to_contain_text("Queue default is paused (by bob")
    assert clicks(page) <= 1
