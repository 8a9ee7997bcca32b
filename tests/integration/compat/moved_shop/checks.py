"""The shop's own tests.  `until(condition)` lets workers work until it is true."""

from __future__ import annotations

from django_jobs.compat.celery import AsyncResult
from tests.integration.compat.moved_shop import tasks
from tests.integration.compat.moved_shop.celery_app import app


def begin():
    for each in (tasks.SENT, tasks.FAILED, tasks.STARTED):
        each.clear()
    tasks.PRICES.clear()
    tasks.OUTAGES.update(mail=0, prices=0)


def check_an_order_is_priced_and_billed(until):
    result = tasks.place_order(5, [1, 2, 3])
    until(result.ready)
    assert result.get(timeout=5) == 42
    assert tasks.SENT == [(5, "bill", 42)]


def check_a_receipt_is_sent_again_while_mail_is_down(until):
    tasks.OUTAGES["mail"] = 2
    result = tasks.pay(5, "a@example.com")
    until(result.ready)
    assert (result.state, tasks.SENT) == ("SUCCESS", [(5, "a@example.com", 2)])
    assert tasks.STARTED == ["shop.tasks.send_receipt"] * 3


def check_support_is_told_when_mail_stays_down(until):
    tasks.OUTAGES["mail"] = 9
    result = tasks.pay(5, "a@example.com")
    until(lambda: tasks.SENT)
    assert [(result.id, "support", None)] == tasks.SENT
    assert tasks.FAILED == [("shop.tasks.send_receipt", "ConnectionError", [5, "a@example.com"])]
    assert isinstance(AsyncResult(result.id).result, ConnectionError)


def check_prices_are_imported_after_an_outage(until):
    tasks.OUTAGES["prices"] = 1
    result = app.send_task("shop.tasks.import_prices", ("main",))
    until(result.ready)
    assert (result.get(timeout=5), tasks.PRICES) == (7, {"main": 7})


def check_prices_that_stay_away_are_an_error(until):
    tasks.OUTAGES["prices"] = 9
    result = tasks.import_prices.delay("main")
    until(result.ready)
    assert (result.failed(), tasks.OUTAGES["prices"]) == (True, 6)


def check_a_task_may_give_up(until):
    result = tasks.give_up.delay()
    until(result.ready)
    assert result.get(timeout=5) == "gave up"


def check_everybody_is_reminded(until):
    result = tasks.remind_all.delay()
    until(lambda: len(tasks.SENT) == 2)
    assert sorted(tasks.SENT) == [(0, "late", 0), (1, "late", 0)]
    until(result.ready)


def check_a_direct_call_needs_no_worker(until):
    assert tasks.price_of(3) == 21
    assert tasks.price_of.apply((3,)).get() == 21


def check_eager_tests_need_no_worker(until):
    app.conf.task_always_eager = True
    try:
        assert tasks.pay(1, "b@example.com").get() == 1
        assert tasks.place_order(2, [1]).get() == 7
    finally:
        app.conf.task_always_eager = False


def check_the_schedule_is_there(until):
    assert set(app.conf.beat_schedule) == {"nightly", "every-minute"}


CHECKS = [function for name, function in sorted(globals().items()) if name.startswith("check_")]
