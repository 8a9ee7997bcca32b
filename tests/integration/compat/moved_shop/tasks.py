from __future__ import annotations

from django_jobs.compat.celery import Task, chain, chord, get_task_logger, group, shared_task
from django_jobs.compat.celery.exceptions import MaxRetriesExceededError
from django_jobs.compat.celery.signals import task_failure, task_prerun

logger = get_task_logger(__name__)

#: What the shop's database and its partners would have.
SENT, PRICES, FAILED, STARTED, OUTAGES = [], {}, [], [], {"mail": 0, "prices": 0}


class ShopTask(Task):
    """Notes orders that could not be handled."""

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        FAILED.append((self.name, type(exc).__name__, list(args)))


@task_prerun.connect
def started(sender=None, task_id=None, **kwargs):
    STARTED.append(sender.name)


@task_failure.connect
def failed(sender=None, exception=None, **kwargs):
    logger.info("%s failed: %s", sender.name, exception)


@shared_task(name="shop.tasks.send_receipt", bind=True, base=ShopTask, max_retries=3, default_retry_delay=0)
def send_receipt(self, order_id, to):
    try:
        if OUTAGES["mail"] > 0:
            OUTAGES["mail"] -= 1
            raise ConnectionError("mail is down")
        SENT.append((order_id, to, self.request.retries))
    except ConnectionError as error:
        raise self.retry(exc=error) from error
    return order_id


@shared_task(
    name="shop.tasks.import_prices",
    base=ShopTask,
    autoretry_for=(ConnectionError,),
    retry_kwargs={"max_retries": 2, "countdown": 0},
    ignore_result=False,
)
def import_prices(catalogue):
    if OUTAGES["prices"] > 0:
        OUTAGES["prices"] -= 1
        raise ConnectionError("prices are down")
    PRICES[catalogue] = 7
    return 7


@shared_task(name="shop.tasks.total")
def total(amounts):
    return sum(amounts)


@shared_task(name="shop.tasks.price_of")
def price_of(number):
    return number * 7


@shared_task(name="shop.tasks.bill")
def bill(amount, order_id):
    SENT.append((order_id, "bill", amount))
    return amount


@shared_task(name="shop.tasks.tell_support")
def tell_support(task_id):
    SENT.append((task_id, "support", None))


@shared_task(name="shop.tasks.give_up", bind=True, max_retries=0)
def give_up(self):
    try:
        self.retry(countdown=0)
    except MaxRetriesExceededError:
        return "gave up"


@shared_task(name="shop.tasks.remind_all")
def remind_all():
    return group(send_receipt.s(n, "late") for n in range(2)).apply_async().id


def place_order(order_id, numbers):
    """What a view does."""
    prices = [price_of.s(number) for number in numbers]
    return chord(prices)(chain(total.s(), bill.s(order_id)))


def pay(order_id, to):
    return send_receipt.apply_async((order_id, to), link_error=tell_support.s(), headers={"tenant": "a"})
