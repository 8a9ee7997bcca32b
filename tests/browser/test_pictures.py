"""The pictures of the documentation: a shop after an hour of work, drawn again with SCREENSHOTS=docs/images."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from django_jobs import Batch, Workflow, browse, job
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.values import Attempt, Completed, Controls, State
from django_jobs.operations import error_inbox, releases
from django_jobs.schedules.scheduler import Periodic
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

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("SCREENSHOTS" not in os.environ, reason="draws pictures into the folder SCREENSHOTS"),
]

MINUTE = 60_000
KINDS = [
    ("shop.send_receipt", "mail", [[7021], {"email": "ada@example.com"}]),
    ("shop.resize_photo", "photos", [["products/7021.jpg"], {"width": 1200}]),
    ("shop.charge_card", "payments", [[7021], {"card_number": "4111111111111111"}]),
    ("shop.notify_partner", "webhooks", [[7021], {"url": "https://partner.example/orders"}]),
]
ERRORS = [
    (
        "requests.exceptions.HTTPError",
        "500 Server Error for url: https://partner.example/orders/{}",
        "shop/partner.py, in notify: response.raise_for_status()",
    ),
    (
        "TimeoutError",
        "Connection to mail.example.com timed out after {} s",
        "shop/jobs.py, in send_receipt: smtp.send(order.receipt(), to=order.email)",
    ),
    (
        "shop.errors.CardDeclined",
        "Card of order {} was declined: insufficient funds",
        "shop/payments.py, in charge: raise CardDeclined(order)",
    ),
]


def resize_photo(path: str, width: int) -> None:
    """Jobs of a type that the web process does not know show neither arguments nor messages."""


def notify_partner(order_id: int, url: str) -> None:
    """Another job of the shop."""


def export_orders(year: int, month: int) -> None:
    """A job that runs for minutes."""


OTHERS = (resize_photo, notify_partner, export_orders)
#: Which releases ran, from which minute on.
RELEASES = {"2026.11.3": 0, "2026.11.4": 34}


@pytest.fixture
def console_store(make_redis_store: Callable[..., Store]) -> Iterator[Store]:
    """An hour of the shop, minute by minute, up to now."""
    chance = random.Random(7)
    now = int(time.time() * 1000)
    moment = [now - 60 * MINUTE]
    store: Store = make_redis_store(clock=lambda: moment[0])
    use_store(store)
    filler = Filler(store)
    for function in OTHERS:
        registry.register(JobDefinition(function, name=f"shop.{function.__name__}"))
    with shop_jobs():
        for minute in range(60):
            for release in [name for name, first in RELEASES.items() if first == minute]:
                releases.noting(release)()
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
    for function in OTHERS:
        registry.unregister(f"shop.{function.__name__}")
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
        store.complete(queue, [Completed(claim, b"null", chance.randint(20, 400), name, wait_ms=waited)])
        return
    error, message, frame = ERRORS[{"webhooks": 0, "payments": 2}.get(queue, 1)]
    said = message.format(30 if queue in {"mail", "photos"} else filler.number)
    release = list(releases.releases())[-1]
    attempt = Attempt(1, "failed", store.now(), 30_021, claim.worker, error, said, TRACEBACK, release, frame)
    if last:
        store.bury(claim, attempt)
    else:
        store.retry(claim, attempt, chance.randint(MINUTE * 60, MINUTE * 70))


def leave(store: Store, filler: Filler, now: int) -> None:
    """What waits, runs and is closed at this moment."""
    queues = ["default", "mail", "payments", "photos", "reports", "webhooks"]
    running = list[dict[str, Any]]()
    for i in range(5):
        id = filler.add("shop.export_orders", [[2026], {"month": i + 1}], queue="reports")
        about = {"id": id, "name": "shop.export_orders", "queue": "reports", "since": now - (19 - 3 * i) * MINUTE}
        running.append(about)
        claim = filler.run(id, queue="reports")
        text = f'{{"message": "rows {i + 1},200 of 10,000", "progress": 0.{i + 1}2, "at": {now}}}'
        store.checkin(claim, text.encode())
    for n, (name, hours) in enumerate((("web-1:4711", 9), ("web-2:1822", 3))):
        child = {"name": f"{name}/1", "pid": 4712, "lane": "shared", "memory": 48_000_000, "jobs": running[n::2]}
        info = worker_info(host=name[:5], queues=queues, started_at=now - hours * 60 * MINUTE, children=[child])
        store.publish_worker(name, info, 3_600_000)
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
    of_partner = next(each for each in error_inbox.inbox().errors if "HTTPError" in each.type)
    error_inbox.decide(of_partner, by="ada", note="The partner knows: they mend it this week.")
    page.goto(f"{base}errors/")
    assert page.locator(".jobs-table tbody tr").count() == 3
    shoot(page, "inbox")
    page.goto(f"{base}errors/{of_partner.id}/")
    shoot(page, "inbox-error")
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
        page.goto(f"{base}types/shop.send_receipt/?period=week")
        assert page.locator("#jobs-run-times").count() == 1
        shoot(page, "job-type")
        page.goto(f"{base}jobs/dead/?group=tag")
        assert page.locator(".jobs-groups li").count() == 3
        shoot(page, "tags")
        page.goto(f"{base}jobs/dead/?queue=payments&from=2026-01-01T08:30&until=2099-12-31")
        assert page.locator(".jobs-list tbody tr").count() > 3
        shoot(page, "dead")
        error = browse.error_groups(State.DEAD, browse.Match())[0]
        page.goto(f"{base}jobs/dead/?error={error.key}&period=week")
        assert page.locator(".jobs-error .jobs-bar-bad").count() > 5
        shoot(page, "error")
        page.goto(f"{base}workers/web-2:1822/?period=day")
        assert page.locator(".jobs-bar-good").count() >= 23
        shoot(page, "worker")
    use_store(None)


def test_the_picture_of_a_night(
    make_redis_store: Callable[..., Store], open_page: Callable[..., Page], shoot: Callable[..., Any], settings: Any
) -> None:
    """Schedules around this moment: one ran, one failed, one was skipped, one missed its time, one is paused."""
    clock = MachineClock()
    store = make_redis_store(clock=clock)
    own = {"nightly_report": "0 3 * * *", "hourly_sync": "0 */2 * * *", "import_prices": "30 4 * * *"}
    settings.DJANGO_JOBS = {
        **settings.DJANGO_JOBS,
        "SCHEDULES": {
            name: {"job": "shop.send_receipt", "cron": cron, "args": [1], "overlap": "skip", "timezone": "UTC"}
            for name, cron in own.items()
        },
    }
    use_store(store)
    with shop_jobs():
        clock.shift = -24 * 60 * MINUTE
        periodic = Periodic(lambda: 0.0)
        while clock.shift < 0:
            periodic.tick()
            for claim in store.claim("default", "web-1:4711/1", 9, lease=600_000).claims:
                if "import" in claim.id:
                    store.bury(claim, Attempt(1, "failed", store.now(), 900, "w", "OSError", "no such host", TRACEBACK))
                else:
                    store.complete("default", [Completed(claim, b"null", 900, "shop.send_receipt")])
            clock.shift += (180 if -10 < clock.shift / 60 / MINUTE < -6 else 30) * MINUTE
        clock.shift = 0
        page = open_page("schedules/tonight/")
        assert page.locator("[data-ended=missed]").count() > 0
        shoot(page, "tonight")
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
