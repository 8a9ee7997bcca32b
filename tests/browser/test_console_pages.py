"""Every page of the console in Chromium: empty, typical and hostile, on a desk and on a phone, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from playwright.sync_api import Page

from django_jobs import browse
from django_jobs.browse import Match
from django_jobs.core.values import State
from django_jobs.operations import bulk
from django_jobs.operations.error_inbox import inbox
from django_jobs.stores.redis import Store
from tests.browser.conftest import SIZES
from tests.support.console_data import (
    MARKUP,
    Filler,
    fill_hostile,
    fill_typical,
    fill_week,
    worker_info,
    worker_numbers,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PATHS = {
    "overview": "",
    "overview-day": "?period=day",
    "overview-week": "?period=week",
    "queues": "queues/",
    "queue": "queues/default/",
    **{state.value: f"jobs/{state.value}/" for state in State},
    "dead-groups": "jobs/dead/?group=1",
    "dead-groups-times": "jobs/dead/?group=1&from=2020-01-01T08:30",
    "dead-search": "jobs/dead/?q=timed",
    "dead-tags": "jobs/dead/?group=tag",
    "dead-tag": "jobs/dead/?tag=customer:42",
    "dead-times": "jobs/dead/?from=2020-01-01T08:30&until=2100-01-01&order=asc",
    "dead-query": "jobs/dead/?q=arg.order_id%3D42",
    "search": "search/?q=timed",
    "search-query": "search/?q=arg.order_id%3D42+error:TimeoutError",
    "paused": "paused/",
    "tonight": "schedules/tonight/",
    "errors": "errors/",
    "errors-resolved": "errors/?state=resolved",
    "type": "types/shop.send_receipt/",
    "queue-week": "queues/default/?period=week",
    "type-week": "types/shop.send_receipt/?period=week",
    "type-hour": "types/shop.send_receipt/?period=hour",
    "type-of-one-queue": "types/shop.charge_card/?queue=default",
    "workers": "workers/",
    "store": "store/",
    "bulk": "bulk/",
    "history": "history/",
}
#: Whether a page fits is a matter of its width and not of its colours: test_console_axe.py looks at those.
LOOKS = [("desktop", "light"), ("phone", "dark")]


def no_data(store: Store) -> dict[str, str]:
    return {}


def typical(store: Store) -> dict[str, str]:
    fill_week(Filler(store, "01H"), store.options.clock)
    fill_typical(store)
    store.publish_worker("web-1:4711", worker_info(), 600_000)  # for longer than all pages take
    store.publish_worker("web-2:1822", worker_info(host="web-2", **worker_numbers(store.now(), 40)), 600_000)
    operation = bulk.start("delete", State.EXPIRED, Match(), user="ada")
    dead = store.page("default", State.DEAD, 0, 1)[0].id
    running = store.page("default", State.RUNNING, 0, 1)[0].id
    return {
        "error": f"errors/{inbox().errors[0].id}/",
        "job-dead": f"job/default/{dead}/",
        "job-running": f"job/default/{running}/",
        "edit": f"job/default/{dead}/edit/",
        "another": f"job/default/{dead}/another/",
        "operation": f"bulk/{operation.id}/",
        "gone": "job/default/nothing/",
        "worker": "workers/web-2:1822/",
        "worker-week": "workers/web-2:1822/?period=week",
        "worker-unknown": "workers/web-1:4711/",
        **errors(store),
    }


def errors(store: Store) -> dict[str, str]:
    """The pages of the largest error of each state that has groups."""
    found = {state: browse.error_groups(state, Match()) for state in (State.DEAD, State.RETRY)}
    return {
        f"error-{state}": f"jobs/{state}/?error={groups[0].key}&period=week"
        for state, groups in found.items()
        if groups
    }


def hostile(store: Store) -> dict[str, str]:
    fill_hostile(store)
    jobs = {f"job-{state}-{i}": info.id for state in State for i, info in enumerate(store.page("default", state, 0, 9))}
    return {name: f"job/default/{quote(id)}/" for name, id in jobs.items()} | errors(store)


@pytest.mark.parametrize("fill", [no_data, typical, hostile])
def test_every_page_fits_its_screen_and_runs_no_foreign_script(
    fill: Callable[[Store], dict[str, str]],
    console_store: Store,
    open_page: Callable[..., Page],
    shoot: Callable[[Page, str], Any],
    live_server: Any,
) -> None:
    more = fill(console_store)
    page = open_page()
    for name, path in {**PATHS, **more}.items():
        if name != "gone":
            response = page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{path}")
            assert response is not None
            assert response.status == 200, (name, response.status)
        assert page.locator(".jobs img").count() == 0, name
        assert page.locator(".jobs script").count() == 0, name
        for size, scheme in LOOKS:
            page.set_viewport_size(SIZES[size])
            page.emulate_media(color_scheme=scheme)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            shoot(page, f"{fill.__name__}-{name}-{size}-{scheme}")
            assert wide <= 0, f"{name} is {wide} px wider than the screen of a {size}"


def test_the_names_of_hostile_jobs_are_shown_as_they_are(console_store: Store, open_page: Callable[..., Page]) -> None:
    fill_hostile(console_store)
    page = open_page("jobs/dead/")
    assert page.get_by_text(MARKUP).count() > 0
