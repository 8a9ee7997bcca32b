"""The pictures of the documentation: a shop after an hour of work, drawn again with SCREENSHOTS=docs/images."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from django_jobs import Batch, Workflow, browse, job
from django_jobs.core.values import Attempt, Controls, Done, State
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.workflows import engine
from tests.browser.conftest import MachineClock
from tests.contract.workflows.steps import run
from tests.support.console_data import (
    TRACEBACK,
    Filler,
    fill_typical,
    fill_week,
    shop_jobs,
    worker_info,
    worker_numbers,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MINUTE = 60_000
KINDS = [
    ("shop.send_receipt", "mail", [[7021], {"email": "ada@example.com"}]),
    ("shop.resize_photo", "photos", [["products/7021.jpg"], {"width": 1200}]),
    ("shop.charge_card", "payments", [[7021], {"card_number": "4111111111111111"}]),
    ("shop.notify_partner", "webhooks", [[7021], {"url": "https://partner.example/orders"}]),
]
ERRORS = [
    ("requests.exceptions.HTTPError", "500 Server Error for url: https://partner.example/orders/{}"),
    ("TimeoutError", "Connection to mail.example.com timed out after {} s"),
    ("shop.errors.CardDeclined", "Card of order {} was declined: insufficient funds"),
]


@pytest.fixture
def console_store(make_redis_store: Callable[..., Store]) -> Iterator[Store]:
    """An hour of the shop, minute by minute, up to now."""
    chance = random.Random(7)
    now = int(time.time() * 1000)
    moment = [now - 60 * MINUTE]
    store: Store = make_redis_store(clock=lambda: moment[0])
    use_store(store)
    filler = Filler(store)
    with shop_jobs():
        for minute in range(60):
            health_issue = 22 <= minute <= 31
            for i in range(chance.randint(9, 16) + (minute % 13 == 0) * 9):
                kind = KINDS[chance.randrange(4)]
                work(
                    store,
                    filler,
                    chance,
                    kind,
                    fails=chance.random() < (0.35 if health_issue else 0.02),
                    busy=health_issue,
                    last=i % 3 == 0,
                )
                moment[0] = now - (60 - minute) * MINUTE + min(i * 2_000, 50_000)
            moment[0] = now - (59 - minute) * MINUTE
        leave(store, filler, now)
        moment[0] = now
        yield store
    use_store(None)


def work(store: Store, filler: Filler, chance: Any, kind: Any, *, fails: bool, busy: bool, last: bool) -> None:
    """One job, from its beginning to its end."""
    name, queue, call = kind
    filler.number += chance.randint(1, 99)
    id = filler.add(
        name, [[filler.number, *call[0][1:]], call[1]] if name != "shop.resize_photo" else call, queue=queue
    )
    claim = filler.run(id, queue=queue)
    if not fails:
        waited = chance.randint(1, 9) * (40 if busy else 1)
        store.complete(queue, [Done(claim, b"null", chance.randint(20, 400), name, wait_ms=waited)])
        return
    error, message = ERRORS[{"webhooks": 0, "payments": 2}.get(queue, 1)]
    said = message.format(30 if queue in {"mail", "photos"} else filler.number)
    attempt = Attempt(1, "failed", store.now(), 30_021, claim.worker, error, said, TRACEBACK)
    if last:
        store.bury(claim, attempt)
    else:
        store.retry(claim, attempt, chance.randint(MINUTE * 60, MINUTE * 70))


def leave(store: Store, filler: Filler, now: int) -> None:
    """What waits, runs and is closed at this moment."""
    queues = ["default", "mail", "payments", "photos", "reports", "webhooks"]
    for name, hours in (("web-1:4711", 9), ("web-2:1822", 3)):
        info = worker_info(host=name[:5], queues=queues, started_at=now - hours * 60 * MINUTE)
        store.publish_worker(name, info, 3_600_000)
    for i in range(5):
        id = filler.add("shop.export_orders", [[2026], {"month": i + 1}], queue="reports")
        claim = filler.run(id, queue="reports")
        text = f'{{"message": "rows {i + 1},200 of 10,000", "progress": 0.{i + 1}2, "at": {now}}}'
        store.checkin(claim, text.encode())
    for i in range(14):
        filler.add("shop.send_receipt", [[9000 + i], {}], queue="mail", controls=Controls(priority=i % 3 * 5))
        filler.make(State.SCHEDULED, name="shop.send_reminder", queue="mail", run_in=(i + 2) * MINUTE * 60)
    store.pause("payments", reason="The bank works on its API until 18:00", until=now + 90 * MINUTE)


@pytest.mark.parametrize("scheme", ["light"])
def test_the_pictures_of_the_documentation(
    scheme: str, console_store: Store, open_page: Callable[..., Page], shoot: Callable[..., Any], live_server: Any
) -> None:
    page = open_page("", scheme=scheme)
    base = f"{live_server.url}/admin/django_jobs/dashboard/"
    assert page.locator(".jobs-bar-good").count() > 50
    shoot(page, "overview")
    page.goto(f"{base}jobs/dead/?group=1")
    assert page.locator(".jobs-groups li").count() == 3
    shoot(page, "errors")
    dead = console_store.page("mail", State.DEAD, 0, 1)[0].id
    page.goto(f"{base}job/mail/{dead}/")
    assert page.get_by_text("TimeoutError").count() > 0
    shoot(page, "job")
    dark = open_page("jobs/running/", scheme="dark")
    assert dark.locator("progress").count() == 5
    shoot(dark, "running-dark")


def test_the_pictures_of_tags_an_error_a_week_and_a_worker(
    make_redis_store: Callable[..., Store],
    open_page: Callable[..., Page],
    shoot: Callable[..., Any],
    live_server: Any,
) -> None:
    clock = MachineClock()
    store = make_redis_store(clock=clock)
    use_store(store)
    with shop_jobs():
        fill_week(Filler(store, "01H"), clock)
        fill_typical(store)
        for name, hours in (("web-1:4711", 90), ("web-2:1822", 40)):
            numbers = worker_numbers(store.now(), hours)
            running = {"id": "01J000000029", "name": "shop.send_receipt", "queue": "default"}
            jobs = [running | {"since": store.now() - 14 * MINUTE}]
            child = {"name": f"{name}:1", "pid": 4712, "lane": "shared", "memory": 48_000_000, "jobs": jobs}
            store.publish_worker(
                name, worker_info(host=name[:5], pid=int(name[6:]), children=[child], **numbers), 600_000
            )
        page = open_page("?period=week")
        assert page.locator(".jobs-bar-good").count() > 10
        shoot(page, "overview-week")
        base = f"{live_server.url}/admin/django_jobs/dashboard/"
        page.goto(f"{base}jobs/dead/?group=tag")
        assert page.locator(".jobs-groups li").count() == 3
        shoot(page, "tags")
        error = browse.error_groups(State.DEAD, browse.Match())[0]
        page.goto(f"{base}jobs/dead/?error={error.key}&period=week")
        assert page.locator(".jobs-error .jobs-bar-bad").count() > 5
        shoot(page, "error")
        page.goto(f"{base}workers/web-2:1822/?period=day")
        assert page.locator(".jobs-bar-good").count() >= 23
        shoot(page, "worker")
    use_store(None)


# -- workflows ---------------------------------------------------------------------


@job(name="shop.pay", max_attempts=1)
def pay(order: int) -> str:
    """Charge the card."""
    return f"R-{order}"


@job(name="shop.pack", max_attempts=1)
def pack(order: int) -> str:
    """Tell the warehouse, which has closed."""
    if order == 7021:
        raise TimeoutError("warehouse.example did not answer within 30 s")
    return f"P-{order}"


@job(name="shop.write_invoice", max_attempts=1)
def write_invoice(order: int, payment: str) -> str:
    """Write the invoice."""
    return f"{order}: {payment}"


@job(name="shop.mail_receipt", max_attempts=1)
def mail_receipt(order: int, *parts: str) -> None:
    """Mail the receipt."""


@job(name="shop.import_product", max_attempts=1)
def import_product(number: int) -> None:
    """Add a product; one line of the catalogue is wrong."""
    if number == 3:
        raise ValueError("line 3: the price is missing")


def order(number: int) -> str:
    """Enqueue an order: paid, then packed and invoiced side by side, then mailed."""
    flow = Workflow(f"order {number}")
    paid = flow.add(pay.s(number), name="paid")
    packed = flow.add(pack.s(number), name="packed", after=paid)
    invoiced = flow.add(write_invoice.s(number, paid.result), name="invoiced")
    flow.add(mail_receipt.s(number, packed.result, invoiced.result), name="mailed")
    id: str = flow.enqueue(on_commit=False).id
    return id


def test_the_pictures_of_workflows(
    make_redis_store: Callable[..., Store],
    open_page: Callable[..., Page],
    shoot: Callable[..., Any],
    live_server: Any,
) -> None:
    store = make_redis_store(clock=lambda: int(time.time() * 1000))
    use_store(store)
    stopped = [order(number) for number in (7019, 7020, 7021)][-1]
    run(store)
    with Batch("catalogue of the supplier", on_success=mail_receipt.s(1), on_dead=mail_receipt.s(2)) as batch:
        for number in range(12):
            import_product.using(on_commit=False).enqueue(number)
    run(store, 8)
    order(7022)
    for queue in store.queues():
        engine.advance(store, queue)
    page = open_page("workflows/")
    assert page.locator("progress").count() >= 5
    shoot(page, "workflows")
    base = f"{live_server.url}/admin/django_jobs/dashboard/workflows"
    page.goto(f"{base}/{stopped}/")
    assert page.locator("svg .jobs-step").count() == 4
    shoot(page, "workflow")
    page.goto(f"{base}/{batch.id}/")
    assert page.locator(".jobs-tile").count() >= 2
    shoot(page, "batch")
    use_store(None)
