"""The console used: with a keyboard, without scripts, under a strict policy, left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler, fill_typical

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_dead_job_is_retried_with_the_keyboard_alone(console_store: Store, open_page: Callable[..., Page]) -> None:
    id = Filler(console_store).make(State.DEAD)
    page = open_page("jobs/dead/")
    page.locator(f'input[value="default/{id}"]').focus()
    page.keyboard.press("Space")
    expect(page.locator("[data-jobs-ticked]")).to_have_text("(1)")
    page.get_by_role("button", name="Retry now").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_contain_text("1 job was queued.")


@pytest.mark.timed(beside=1)
def test_tabbing_reaches_filters_actions_and_rows_in_reading_order(
    console_store: Store, open_page: Callable[..., Page]
) -> None:
    Filler(console_store).make(State.DEAD)
    page = open_page("jobs/dead/")
    page.locator("#jobs-q").focus()
    met: list[str] = []
    for _ in range(18):
        page.keyboard.press("Tab")
        met.append(page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
    places = [met.index(each) for each in ("queue", "name", "Filter", "verb", "scope", "job", "shop.send_receipt")]
    assert places == sorted(places), met


def test_everything_works_without_scripts(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    for _ in range(3):
        filler.make(State.DEAD)
    page = open_page("jobs/dead/", java_script_enabled=False)
    page.get_by_label("all 3").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("3 jobs in state “Dead”.")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("3 jobs were deleted. It is complete.")).to_be_visible()
    assert console_store.stats(["default"])[0].counts["dead"] == 0


def test_ticking_all_ticks_the_page(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    for _ in range(4):
        filler.make(State.DEAD)
    page = open_page("jobs/dead/")
    page.locator("[data-jobs-all]").check()
    expect(page.locator("[data-jobs-ticked]")).to_have_text("(4)")
    page.locator('input[name="job"]').first.uncheck()
    expect(page.locator("[data-jobs-ticked]")).to_have_text("(3)")
    assert page.locator("[data-jobs-all]").evaluate("each => each.indeterminate")


def test_a_page_left_open_shows_what_happens_but_not_to_one_who_chooses(
    console_store: Store, open_page: Callable[..., Page]
) -> None:
    filler = Filler(console_store)
    filler.make(State.DEAD)
    page = open_page("jobs/dead/")
    page.clock.install()
    page.reload()
    filler.make(State.DEAD)
    page.clock.run_for(6_000)
    expect(page.locator('input[name="job"]')).to_have_count(2)
    page.locator('input[name="job"]').first.check()
    filler.make(State.DEAD)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(30_000)
    assert asked == []
    assert page.locator('input[name="job"]').count() == 2


def test_a_hidden_page_asks_nothing(console_store: Store, open_page: Callable[..., Page]) -> None:
    page = open_page("")
    page.clock.install()
    page.reload()
    page.evaluate(
        """() => {
        Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert asked == []


def test_the_console_runs_under_a_strict_content_security_policy(
    console_store: Store, open_page: Callable[..., Page], live_server: Any
) -> None:
    fill_typical(console_store)
    page = open_page("")

    def with_policy(route: Any) -> None:
        response = route.fetch()
        policy = "default-src 'self'; img-src 'self' data:"
        route.fulfill(response=response, headers={**response.headers, "content-security-policy": policy})

    page.route("**/*", with_policy)
    refused: list[str] = []
    page.on(
        "console", lambda message: refused.append(message.text) if "Content Security Policy" in message.text else None
    )
    for path in ("", "queues/", "queues/default/", "jobs/dead/", "jobs/dead/?group=1", "workers/", "history/"):
        page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{path}")
        expect(page.locator(".jobs-tabs")).to_be_visible()
    assert refused == []


def test_a_traceback_is_copied(console_store: Store, open_page: Callable[..., Page]) -> None:
    id = Filler(console_store).make(State.DEAD)
    page = open_page(f"job/default/{id}/", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copy ✓")).to_be_visible()
    assert "smtplib.py" in page.evaluate("navigator.clipboard.readText()")
