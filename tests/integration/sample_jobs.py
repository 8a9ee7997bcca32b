"""Jobs that the integration tests enqueue and run; each leaves a line in `ran`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from django_jobs import JobContext, Snooze, job
from django_jobs.core import registry

#: (name, arguments) of every run; fixtures of the tests empty it.
ran: list[tuple[str, Any]] = []


@job(name="sample.receipt")
def receipt(order_id: int, copy: bool = False) -> str:
    ran.append(("receipt", (order_id, copy)))
    return f"receipt {order_id}"


@job(name="sample.other", queue="mail", priority=5, max_attempts=3)
def other(**values: Any) -> None:
    ran.append(("other", values))


@job(name="sample.unique", unique="queued")
def unique(account_id: int, note: str = "") -> None:
    ran.append(("unique", (account_id, note)))


@job(name="sample.strict", unique="queued", on_conflict="raise")
def strict(account_id: int) -> None:
    ran.append(("strict", account_id))


@job(name="sample.daily", unique=timedelta(days=1), unique_on=["account_id"])
def daily(account_id: int, note: str = "") -> None:
    ran.append(("daily", (account_id, note)))


@job(name="sample.other_account", unique_on=["account_id"])
def other_account(account_id: int, month: str) -> None:
    ran.append(("other_account", (account_id, month)))


@job(name="sample.failing", max_attempts=2, backoff=[60])
def failing(order_id: int) -> None:
    ran.append(("failing", order_id))
    raise ValueError(f"no order {order_id}")


@job(name="sample.chain")
def chain(left: int) -> None:
    ran.append(("chain", left))
    if left:
        chain.enqueue(left - 1)


@job(name="sample.context", takes_context=True, timeout=5)
def context(ctx: JobContext, order_id: int) -> int:
    ran.append(("context", (ctx.attempt, order_id)))
    return ctx.attempt


@job(name="sample.coroutine")
async def coroutine(order_id: int) -> int:
    ran.append(("coroutine", order_id))
    return order_id


@job(name="sample.short", expires_in=60, max_concurrency=2, concurrency_key="account_id")
def short(account_id: int) -> None:
    ran.append(("short", account_id))


@job(name="sample.snoozing")
def snoozing() -> None:
    ran.append(("snoozing", None))
    raise Snooze(in_=30)


@job(name="sample.counter")
def counter(holder: str) -> None:
    """Not idempotent, as run_twice shows."""
    ran.append(("counter", holder))
    if ("counter", holder) in ran[:-1]:
        raise AssertionError("counted twice")


@job(name="sample.greedy")
def greedy(block_timeout: float) -> None:
    ran.append(("greedy", block_timeout))


@job(name="sample.finds")
def finds(pk: int) -> User:
    return User.objects.get(pk=pk)


# Known while a test of this directory runs: see conftest.py.
registry.unregister("sample.other")
