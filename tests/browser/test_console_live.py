"""A page that is left open: rows, buttons and numbers that belong together change together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.operations import searching
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler, search_in_small_steps

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_rows_and_their_actions_come_and_go_together(console_store: Store, open_page: Callable[..., Page]) -> None:
    page = open_page("jobs/dead/")
    expect(page.get_by_text("There are no dead jobs.")).to_be_visible()
    assert page.locator('button[name="verb"]').count() == 0
    id = Filler(console_store).make(State.DEAD)
    expect(page.locator('input[name="job"]')).to_have_count(1)
    assert page.locator('button[name="verb"]').count() > 0, "the row came without its actions"
    assert page.locator("#jobs-nav").get_by_text("1").count() > 0
    console_store.delete("default", [id])
    expect(page.locator('input[name="job"]')).to_have_count(0)
    assert page.locator('button[name="verb"]').count() == 0, "actions stay without a row"


def test_a_job_that_moves_on_leaves_no_old_button(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    id = filler.make(State.DEAD)
    page = open_page(f"job/default/{id}/")
    expect(page.locator('button[value="delete"]').first).to_be_visible()
    assert page.locator('button[value="cancel"]').count() == 0
    console_store.revive("default", [id])
    expect(page.locator('button[value="cancel"]').first).to_be_visible()
    assert page.locator('button[value="retry"], button[value="revive"]').count() == 0
    filler.run(id)
    expect(page.locator('button[value="delete"]')).to_have_count(0)
    expect(page.locator('button[value="kill"]').first).to_be_visible()


def test_a_search_that_goes_on_shows_its_progress_and_ends(
    console_store: Store, open_page: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    search_in_small_steps(monkeypatch)
    filler = Filler(console_store)
    for i in range(12):
        filler.make(State.DEAD, "needle" if i == 3 else "hay", queue=f"q{i % 4}")
    page = open_page("jobs/dead/?q=needle")
    expect(page.locator(".jobs-scan progress")).to_be_visible()
    while searching.tick(0):
        continue
    expect(page.get_by_text("1 match. 12 of 12 jobs were checked.")).to_be_visible()
    expect(page.locator('input[name="job"]')).to_have_count(1)
