"""A hundred thousand jobs in a real browser: to the last page and back, on a desk and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import Job, NewJob, Options
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NUMBER = 100_000


@pytest.fixture
def console_store(console_store: Store) -> Store:
    """With as many scheduled jobs."""
    now = console_store.now()
    for start in range(0, NUMBER, 1000):
        jobs = [
            Job(f"{i:06}", "default", "shop.send_receipt", b"[[%d],{}]" % i, now, Options())
            for i in range(start, start + 1000)
        ]
        new = [NewJob(job.id, encode(job), job.controls, now + 3_600_000 + int(job.id)) for job in jobs]
        console_store.enqueue("default", new)
    return console_store


def test_the_last_of_100_000_jobs_is_a_click_away(
    open_page: Callable[..., Page], shoot: Callable[[Page, str], Any]
) -> None:
    for size in ("desktop", "phone"):
        page = open_page("jobs/scheduled/", size)
        assert page.locator('input[name="job"]').count() == 50
        assert page.get_by_text("000000", exact=True).count() > 0
        page.get_by_role("link", name="2000", exact=True).click()
        expect(page).to_have_url(re.compile(r"p=2000$"))
        # The address changes before the page is there.
        expect(page.get_by_text("099999", exact=True).first).to_be_visible()
        page.wait_for_load_state()
        assert page.locator('input[name="job"]').count() == 50
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        shoot(page, f"many-last-{size}-light")
        assert wide <= 0
        page.get_by_role("link", name="1999", exact=True).click()
        expect(page).to_have_url(re.compile(r"p=1999$"))
        expect(page.get_by_text("099949", exact=True).first).to_be_visible()
