"""The keyboard shortcuts of the console: what they do, where they stay silent, and how they are turned off."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from tests.browser.test_console_axe import program, violations
from tests.support.console_data import Filler

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def focused(page: Page) -> str:
    """The address of the link that has the focus, or the id of another element."""
    found: str = page.evaluate("document.activeElement.getAttribute('href') || document.activeElement.id")
    return found


def test_a_question_mark_or_the_button_opens_the_list_and_escape_closes_it(
    console_store: Store,
    open_page: Callable[..., Page],
    shoot: Callable[[Page, str], object],
) -> None:
    id = Filler(console_store).make(State.DEAD)
    page = open_page(f"job/default/{id}/edit/", "phone", "dark")  # a page that is not refreshed
    page.locator(".jobs-title").click()
    box = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(box).to_be_hidden()
    page.keyboard.press("?")
    expect(box).to_be_visible()
    assert violations(page, program(), "keys") == []
    shoot(page, "keys")
    page.keyboard.press("d")
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(box).to_be_visible()
    box.get_by_role("button", name="Close").click()
    expect(box).to_be_hidden()


def test_keys_go_to_pages_rows_and_the_search_and_tick_jobs(
    console_store: Store, open_page: Callable[..., Page]
) -> None:
    filler = Filler(console_store)
    ids = [filler.make(State.DEAD) for _ in range(2)]
    page = open_page("queues/")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/jobs/dead/")
    page.keyboard.press("j")
    first = focused(page)
    page.keyboard.press("j")
    second = focused(page)
    assert sorted(id for id in ids for at in (first, second) if id in at) == sorted(ids)
    page.keyboard.press("k")
    assert focused(page) == first
    page.keyboard.press("x")
    expect(page.locator('input[name="job"]:checked')).to_have_count(1)
    page.keyboard.press("x")
    expect(page.locator('input[name="job"]:checked')).to_have_count(0)
    page.keyboard.press("/")
    assert focused(page) == "jobs-find"
    page.go_back()


def test_a_key_in_a_field_is_text_and_with_a_modifier_it_is_the_browsers(
    console_store: Store, open_page: Callable[..., Page]
) -> None:
    page = open_page("jobs/dead/")
    box = page.get_by_role("dialog", name="Keyboard shortcuts")
    for field in ("#jobs-find", "#jobs-q", "#jobs-name"):
        page.locator(field).focus()
        page.keyboard.type("g?/jkxd")
        assert page.locator(field).input_value() == "g?/jkxd"
        assert box.is_hidden()
    page.locator("#jobs-queue").focus()
    page.keyboard.press("?")
    assert box.is_hidden()
    page.locator(".jobs-title").click()
    page.keyboard.press("Alt+?")
    page.keyboard.press("Control+/")
    assert box.is_hidden()
    assert focused(page) != "jobs-find"
    assert page.url.endswith("/jobs/dead/")


def test_they_can_be_turned_off_and_on_again(console_store: Store, open_page: Callable[..., Page]) -> None:
    page = open_page("queues/")
    box = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.keyboard.press("?")
    box.get_by_label("Use these shortcuts in this browser").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("?")
    page.keyboard.press("/")
    assert box.is_hidden()
    assert focused(page) != "jobs-find"
    page.get_by_role("button", name="Keyboard shortcuts").click()
    box.get_by_label("Use these shortcuts in this browser").check()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert focused(page) == "jobs-find"
