"""A page left open while the store or the web server goes away says so, with the age of what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import State
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.console_data import Filler, shop_jobs, worker_info
from tests.support.pace import Pace

pytestmark = [pytest.mark.browser, pytest.mark.timed(beside=1), pytest.mark.django_db(transaction=True)]

PROMISE = 5.0
SIGN = "#jobs-stale"
#: What the browser itself says of a request that failed is expected here.
FAILED = re.compile(r"Failed to load resource")


@pytest.fixture
def redis_of_its_own(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path).start()
    yield server
    server.close()


@pytest.fixture
def console_store(redis_of_its_own: RedisServer) -> Iterator[Store]:
    store = Store.from_setting(redis_of_its_own.url, options=StoreOptions())
    store.publish_worker("web-1:4711", worker_info(), 600_000)
    use_store(store)
    with shop_jobs():
        yield store
    use_store(None)
    store.close()


@pytest.fixture
def expected_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.browser.conftest.is_problem", lambda message: message.type == "error" and not FAILED.search(message.text)
    )


@pytest.mark.redis
@pytest.mark.usefixtures("expected_errors")
def test_within_5_s_after_redis_was_killed_an_open_page_says_so(
    open_page: Callable[..., Page], redis_of_its_own: RedisServer, console_store: Store, pace: Pace
) -> None:
    Filler(console_store).make(State.DEAD)
    page = open_page("jobs/dead/")
    expect(page.locator("#jobs-live")).to_be_visible()
    assert page.locator(SIGN).is_hidden()
    redis_of_its_own.kill()
    killed = monotonic()
    page.wait_for_selector(SIGN, state="visible")
    pace.within(killed, PROMISE)
    text = page.locator(SIGN).inner_text()
    assert re.search(r"shows the state of .*, \d+ s ago", text), text
    expect(page.locator(SIGN)).to_contain_text("job store cannot be reached")
    redis_of_its_own.start()
    expect(page.locator(SIGN)).to_be_hidden()


@pytest.mark.redis
@pytest.mark.usefixtures("expected_errors")
def test_all_is_well_is_not_shown_by_a_page_that_could_not_be_refreshed(
    open_page: Callable[..., Page], redis_of_its_own: RedisServer
) -> None:
    page = open_page("")
    expect(page.get_by_text("No problems")).to_be_visible()
    redis_of_its_own.kill()
    page.wait_for_selector(SIGN, state="visible")
    expect(page.get_by_text("No problems")).to_be_hidden()


@pytest.mark.redis
@pytest.mark.usefixtures("expected_errors")
@pytest.mark.parametrize("end", ["cut", "silent"])
def test_within_5_s_after_the_web_server_is_gone_an_open_page_says_so(
    end: str, open_page: Callable[..., Page], live_server: Any, pace: Pace
) -> None:
    page = open_page("")
    address = urlsplit(live_server.url)
    assert address.port
    proxy = Proxy(address.port)
    try:
        page.context.add_cookies(
            [{**cookie, "url": f"http://127.0.0.1:{proxy.port}"} for cookie in cookies_of(page)]  # type: ignore[typeddict-item]
        )
        page.goto(f"http://127.0.0.1:{proxy.port}/admin/django_jobs/dashboard/")
        expect(page.get_by_text("No problems")).to_be_visible()
        if end == "cut":
            proxy.close()
        else:
            proxy.silent.set()
        gone = monotonic()
        page.wait_for_selector(SIGN, state="visible")
        pace.within(gone, PROMISE)
        expect(page.locator(SIGN)).to_contain_text("The server does not answer.")
    finally:
        proxy.close()


def cookies_of(page: Page) -> list[dict[str, str]]:
    return [{"name": each["name"], "value": each["value"]} for each in page.context.cookies()]
