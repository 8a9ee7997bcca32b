"""Pages whose looks depend on more than their data: on the admin's own layout and style, and on the names of jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from django.utils import timezone
from playwright.sync_api import Page

from django_jobs.browse import Match
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import State
from django_jobs.models import ArchivedJob, Schedule
from django_jobs.models.audit import Act, ObjectKind, Source, record
from django_jobs.operations import bulk
from django_jobs.stores.redis import Store
from tests.browser.conftest import SIZES
from tests.support.console_data import Filler, fill_typical, send_receipt, worker_info

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LONG = "shop.jobs." + "a_name_that_somebody_wrote_out_in_full_" * 4


@pytest.fixture
def _job_with_a_long_name() -> Iterator[None]:
    registry.register(JobDefinition(send_receipt, name=LONG))
    yield
    registry.unregister(LONG)


def right_edges(page: Page, selector: str) -> list[float]:
    """Where the boxes that match end, in pixels beyond the window."""
    found: list[float] = page.evaluate(
        "selector => [...document.querySelectorAll(selector)].map("
        "each => each.getBoundingClientRect().right - document.documentElement.clientWidth)",
        selector,
    )
    return found


def test_the_overview_on_the_apps_own_page_has_the_width_of_the_window(
    console_store: Store, open_page: Callable[..., Page], live_server: Any
) -> None:
    fill_typical(console_store)
    page = open_page("")
    page.goto(f"{live_server.url}/admin/django_jobs/")
    tiles = page.locator(".jobs-tile").evaluate_all("tiles => tiles.map(tile => tile.scrollWidth - tile.clientWidth)")
    assert len(tiles) == 9
    assert max(tiles) <= 0, "a label is wider than its tile"
    scrolled = page.locator(".jobs-scroll").evaluate_all("all => all.map(each => each.scrollWidth - each.clientWidth)")
    assert max(scrolled) <= 0, "a table is cut off"


def test_the_list_of_queues_is_not_cut_off_on_a_desk(console_store: Store, open_page: Callable[..., Page]) -> None:
    fill_typical(console_store)
    page = open_page("queues/")
    scrolled = page.locator(".jobs-scroll").evaluate_all("all => all.map(each => each.scrollWidth - each.clientWidth)")
    assert max(scrolled) <= 0, "a button is cut off"


def test_breadcrumbs_have_the_admins_colour_and_tabs_no_line_in_every_admin(
    console_store: Store, open_page: Callable[..., Page]
) -> None:
    page = open_page("queues/")
    ours, theirs = page.evaluate(
        "() => { const bar = document.body.appendChild(document.createElement('i'));"
        " bar.style.background = 'var(--breadcrumbs-bg)';"
        " return [document.querySelector('.breadcrumbs'), bar].map(e => getComputedStyle(e).backgroundColor) }"
    )
    assert ours == theirs != "rgba(0, 0, 0, 0)"
    lines = page.locator(".jobs-tabs a, .jobs-tile").evaluate_all(
        "links => links.map(link => getComputedStyle(link).textDecorationLine)"
    )
    assert set(lines) == {"none"}


@pytest.mark.usefixtures("_job_with_a_long_name")
def test_a_long_name_of_a_job_widens_no_form(
    console_store: Store, open_page: Callable[..., Page], live_server: Any
) -> None:
    fill_typical(console_store)
    page = open_page()
    for path in ("dashboard/queues/default/", "schedule/add/"):
        page.goto(f"{live_server.url}/admin/django_jobs/{path}")
        for size in ("desktop", "phone"):
            page.set_viewport_size(SIZES[size])
            (edge,) = right_edges(page, f"select:has(option[value='{LONG}'])")
            assert edge <= 0, (path, size)


def test_that_a_queue_is_paused_stands_beside_its_name(console_store: Store, open_page: Callable[..., Page]) -> None:
    fill_typical(console_store)
    console_store.pause("default", reason="the disk is full")
    page = open_page("queues/", "phone")
    assert right_edges(page, ".jobs-queues .jobs-badge")[0] <= 0
    assert "the disk is full" in page.locator(".jobs-queues tbody th").first.inner_text()


def test_no_table_scrolls_sideways_on_a_phone(console_store: Store, open_page: Callable[..., Page]) -> None:
    fill_typical(console_store)
    Schedule.objects.create(
        name="the-nightly-clean-up-of-all-receipts",
        job="shop.send_receipt",
        cron="*/5 2-4 * * 1-5",
        timezone="Europe/Berlin",
    )
    bulk.start("revive", State.DEAD, Match(name="shop.send_receipt"), user="somebody.with.a.long.name@example.com")
    ids = [["default", f"01J{n:09d}"] for n in range(40)]
    record(
        "somebody.with.a.long.name@example.com",
        Source.HTTP,
        Act("kill", ObjectKind.JOB, "default", {"ids": ids}),
    )
    page = open_page("", "phone")
    lists = "bulk/", "jobs/dead/", "queues/", "history/", "search/?q=receipt", "types/shop.send_receipt/"
    for path in ("schedules/", "queues/default/", *lists):
        page.goto(urljoin(page.url, f"/admin/django_jobs/dashboard/{path}"))
        page.locator(".jobs table").first.wait_for()
        scrolled = page.locator(".jobs-scroll").evaluate_all(
            "all => all.map(each => each.scrollWidth - each.clientWidth)"
        )
        assert max(scrolled, default=0) <= 0, f"a table of {path} is cut off"
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, path


def test_the_page_of_an_archived_job_is_not_wider_than_the_window(
    console_store: Store, open_page: Callable[..., Page], live_server: Any
) -> None:
    log = [[1, "failed", 1, 5, "w", "E", "no", "a line of code " * 20]]
    row = ArchivedJob.objects.create(
        job_id=f"w{'0192f0a1b2c3d4e5' * 2}.12", name="shop.send_receipt", queue="default", status="dead", record=b"",
        log=json.dumps(log), ended_at=timezone.now(),
    )  # fmt: skip
    page = open_page()
    for size in ("desktop", "phone"):
        page.set_viewport_size(SIZES[size])
        page.goto(f"{live_server.url}/admin/django_jobs/archivedjob/{row.pk}/change/")
        assert max(right_edges(page, "#content h2, .readonly, .jobs-code, .jobs-log")) <= 0, size
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, size


def test_ids_and_worker_names_break_in_no_single_letters(console_store: Store, open_page: Callable[..., Page]) -> None:
    filler = Filler(console_store)
    name = "worker-of-the-second-machine.example.com:4711/12"
    id = filler.make(State.DEAD, id="0192f0a1b2c3d4e5f60718293a4b5c6d")
    running = filler.add(id="0192f0a1b2c3d4e5f60718293a4b5c6e")
    assert [claim.id for claim in filler.claim(worker=name)] == [running]
    console_store.publish_worker(
        name.partition("/")[0], worker_info(host="worker-of-the-second-machine.example.com"), 600_000
    )
    page = open_page("", "phone")
    for path in ("jobs/dead/", "jobs/running/", "workers/", f"job/default/{id}/", "search/?q=0192"):
        page.goto(urljoin(page.url, f"/admin/django_jobs/dashboard/{path}"))
        narrow = page.evaluate(
            """() => [...document.querySelectorAll('.jobs code, .jobs bdi, .jobs th a')].filter(each => {
                const text = each.textContent.trim();
                if (text.length < 12 || !each.getClientRects().length) return false;
                const range = document.createRange();
                range.selectNodeContents(each);
                const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
                return text.length / lines.size < 6;
            }).map(each => each.textContent.trim())"""
        )
        assert narrow == [], f"a text of {path} has fewer than six letters a line"
