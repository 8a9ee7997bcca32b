"""Workflows in a real browser: the pages fit their screen, axe finds nothing, and the graph leads to jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from django_jobs import Batch, Workflow, job
from django_jobs.stores.redis import Store
from tests.browser.conftest import SIZES
from tests.browser.test_console_axe import COLOURS, RULES, program, violations
from tests.contract.workflows.steps import DEAD, ENDS, act, run
from tests.integration.console.workflows import flows

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@job(name="shop.catalogue.jobs.read_page_of_supplier")
def look_at(name: str) -> None:
    """A job with a long name."""


#: Colours do not depend on the width.
LOOKS = [("desktop", "light"), ("desktop", "dark"), ("phone", "light")]


def catalogue(pages: int = 166) -> str:
    """A graph of some 500 steps: fetched, then parsed and checked, then published."""
    flow = Workflow("catalogue")
    source = flow.add(act.s("source"), name="list of pages")
    last = []
    for number in range(pages):
        fetched = flow.add(act.s(f"{number}"), name=f"fetch {number}", after=[source])
        parsed = flow.add(look_at.s(f"{number}"), name=f"parse {number}", after=[fetched])
        last.append(flow.add(act.s(f"{number}"), name=f"check {number}", after=[parsed]))
    flow.add(act.s("publish"), name="publish", after=last)
    id: str = flow.enqueue().id
    return id


def fill(store: Store) -> dict[str, str]:
    """Workflows and batches in each state; returns the addresses of their pages."""
    held = flows.charged_and_dead(store)
    stopped, done = flows.order(store, dead="packed"), flows.order(store)
    large = catalogue()
    ENDS["17"] = DEAD
    run(store, 120)
    ENDS.clear()
    batch = Batch("import of 2026-11", on_success=act.s("success"), on_dead=act.s("dead"))
    with batch:
        act.enqueue_many([(f"row {n}",) for n in range(40)])
    cancelled = flows.order_waiting()
    return {
        "workflows": "workflows/",
        "stopped": f"workflows/{stopped}/",
        "held": f"workflows/{held}/",
        "done": f"workflows/{done}/",
        "500": f"workflows/{large}/",
        "waiting": f"workflows/{cancelled}/",
        "batch": f"workflows/{batch.handle.id}/",
        "gone": "workflows/w1/",
    }


def test_the_pages_fit_and_axe_finds_nothing(
    console_store: Store,
    open_page: Callable[..., Page],
    live_server: Any,
    shoot: Callable[[Page, str], Any],
) -> None:
    paths, script = fill(console_store), program()
    page = open_page()
    found = []

    def look(name: str) -> None:
        for size, scheme in LOOKS:
            page.set_viewport_size(SIZES[size])
            page.emulate_media(color_scheme=scheme)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            shoot(page, f"flow-{name}-{size}-{scheme}")
            assert wide <= 0, f"{name} is {wide} px wider than the screen of a {size}"
            found.extend(violations(page, script, name, COLOURS if scheme == "dark" else RULES))

    for name, path in paths.items():
        page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{path}")
        look(name)
    page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{paths['waiting']}")
    with page.expect_navigation():
        page.get_by_role("button", name="Cancel").click()
    look("confirm")
    page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{paths['held']}")
    with page.expect_navigation():
        page.get_by_role("button", name="Retry dead steps").click()
    look("confirm-held")
    assert found == []


def test_the_graph_leads_to_jobs_and_boxes_to_steps(
    console_store: Store, open_page: Callable[..., Page], live_server: Any
) -> None:
    paths = fill(console_store)
    page = open_page(paths["stopped"])
    page.locator("svg a", has_text="packed").click()
    page.get_by_text("What happened").wait_for()
    page.get_by_role("link", name=paths["stopped"].split("/")[1]).click()
    page.get_by_role("button", name="Retry dead steps").click()
    page.get_by_text("1 job was queued.").wait_for()
    run(console_store)
    page.reload()
    assert page.locator(".jobs-step.jobs-is-succeeded").count() == 4
    page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{paths['500']}")
    page.locator("svg a", has_text="publish").click()
    page.get_by_role("link", name="Show all").wait_for()
    assert page.locator(".jobs-flows tbody tr").count() == 1
