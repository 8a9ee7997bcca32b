"""A real browser on a live server.  Skipped where Chromium is missing, unless CI says it must be there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.support.backends.missing import chromium
from tests.support.console_data import shop_jobs

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: ms: against hanging.
PATIENCE = 120_000
expect.set_options(timeout=PATIENCE)
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module: Playwright keeps an event loop in this thread, which must end before other tests."""
    program = chromium()
    # Playwright's loop runs in this thread, where Django then refuses the database: the fixtures need it.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=PATIENCE)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
    else:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


class MachineClock:
    """The time of this machine in ms, moved by `shift` ms."""

    shift = 0

    def __call__(self) -> int:
        return time_ns() // 1_000_000 + self.shift


@pytest.fixture
def console_store(make_redis_store: Callable[..., Store]) -> Iterator[Store]:
    """The store of the live server, with the machine's own clock, which a test may set back to make a past."""
    store = make_redis_store(clock=MachineClock())
    use_store(store)
    with shop_jobs():
        yield store
    use_store(None)


@pytest.fixture
def open_page(
    browser: Browser, live_server: Any, transactional_db: None, console_store: Store
) -> Iterator[Callable[..., Page]]:
    """Open a page of the console as a superuser: (path, size, scheme) → Page.  Errors in the page fail the test."""
    user = User.objects.create_superuser("ada", "ada@example.com", "secret")
    client = Client()
    client.force_login(user)
    session = client.cookies["sessionid"].value
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_it(path: str = "", size: str = "desktop", scheme: str = "light", **more: Any) -> Page:
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **more)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{path}: {error}"))
        page.on("console", lambda message: problems.append(f"{path}: {message.text}") if is_problem(message) else None)
        page.on("dialog", lambda dialog: problems.append(f"{path}: dialog {dialog.message}"))
        page.goto(f"{live_server.url}/admin/django_jobs/dashboard/{path}")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert problems == []


def is_problem(message: ConsoleMessage) -> bool:
    """An error that the page made: a site without an icon, or a job that is gone, answers 404 and is none."""
    return message.type == "error" and "404 (Not Found)" not in message.text


@pytest.fixture
def shoot() -> Callable[[Page, str], None]:
    """Keep a picture of a page in the folder SCREENSHOTS; without one nothing is drawn, because nobody would look."""
    folder = os.environ.get("SCREENSHOTS")

    def take(page: Page, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return take
