"""axe finds nothing on any page of the console, in the light and the dark theme, on a desk and on a phone.

Colours do not depend on the width, so that no test asks about the dark theme on a phone.

Under django-unfold, tests/integration/console/look/test_another_theme.py runs this once more."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page

from django_jobs.core.values import Controls, Lane
from django_jobs.models import SavedFilter
from django_jobs.stores.redis import Store
from tests.browser.test_console_pages import PATHS, typical
from tests.support.backends.missing import missing
from tests.support.console_data import Filler

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
#: Both themes have the same elements, so that the dark one is asked about colours only.
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
#: The rows of a table are alike, and axe takes five times as long for fifty of them as for ten.
FEWER_ROWS = "document.querySelectorAll('.jobs tbody').forEach(all => [...all.rows].slice(10).map(row => row.remove()))"
#: Only what the console itself writes: a theme's own header and menu are not ours to mend.
OURS = "#content-main.jobs, .jobs"


def program() -> str:
    """axe-core, which the package brings along."""
    found = find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        missing("axe-playwright-python is missing: pip install --group test.")
    return (Path(next(iter(found.submodule_search_locations))) / "axe.min.js").read_text()


@pytest.mark.parametrize(
    ("size", "schemes"), [("desktop", ["light", "dark"]), ("phone", ["light"])], ids=["desktop", "phone"]
)
def test_axe_finds_nothing(
    size: str,
    schemes: list[str],
    console_store: Store,
    open_page: Callable[..., Page],
    live_server: Any,
    shoot: Callable[[Page, str], Any],
) -> None:
    script = program()
    more = typical(console_store)
    filler = Filler(console_store)
    once = filler.add(
        "shop.charge_card", [[1], {"card_number": "4111"}], controls=Controls(at_most_once=True), id="once"
    )
    (claim,) = console_store.claim("default", "web-1:4711/1", 1, lease=60_000, lane=Lane.ALONE).claims
    console_store.bury(claim, filler.attempt(claim, "TimeoutError", "no answer from the bank"))
    console_store.pause("default", reason="the disk is full")
    console_store.pause("default", name="shop.send_receipt", reason="no paper")
    page = open_page("", size)
    owner, query = str(User.objects.get(username="ada").pk), "queue=default"
    SavedFilter.objects.create(owner=owner, state="dead", name="Only the default queue", query=query)
    found: list[str] = []

    def look(name: str) -> None:
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            found.extend(violations(page, script, f"{name} {scheme}", COLOURS if scheme == "dark" else RULES))
            shoot(page, f"axe-{name}-{size}-{scheme}")

    paths = {**PATHS, **more, "schedules": "schedules/", "job-once": f"job/default/{once}/"}
    paths["edit-once"] = f"job/default/{once}/edit/"
    paths["another-once"] = f"job/default/{once}/another/"
    for name, path in paths.items():
        page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{path}")
        look(name)
    page.goto(f"{live_server.url}/admin/django_jobs/dashboard/job/default/{once}/")
    with page.expect_navigation():
        page.get_by_role("button", name="Retry now").click()
    look("confirm")
    page.goto(f"{live_server.url}/admin/django_jobs/dashboard/job/default/{once}/another/")
    page.get_by_label("I have found out").check()
    with page.expect_navigation():
        page.get_by_role("button", name="Review").click()
    look("confirm-another")
    assert found == []


def violations(page: Page, script: str, name: str, rules: dict[str, Any] = RULES) -> list[str]:
    """What axe finds in the console's part of the page, one line for each rule and element."""
    page.evaluate(script)
    page.evaluate(FEWER_ROWS)
    # A colour that changes slowly, because the theme has just changed, is at its end.
    page.evaluate("document.getAnimations().forEach(each => { try { each.finish() } catch {} })")
    # What is in order would be most of the answer, and most of the time.
    call = "([ours, rules]) => axe.run(ours, {runOnly: rules, resultTypes: ['violations']}).then(all => all.violations)"
    return [
        f"{name}: {each['id']}: {node['target']}: {node['failureSummary']}"
        for each in page.evaluate(call, [OURS, rules])
        for node in each["nodes"]
    ]
