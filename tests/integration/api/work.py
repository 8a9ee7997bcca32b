"""Jobs that the API tests enqueue, and a note of what ran."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from django_jobs import job
from django_jobs.core import registry

ran: list[Any] = []


@job(name="tests.greet", api=True)
def greet(name: str, greeting: str = "Hello") -> str:
    ran.append((name, greeting))
    return f"{greeting}, {name}"


@job(name="tests.swallow", api=True, queue="small")
def swallow(value: Any = None) -> None:
    ran.append(value)


@job(name="tests.charge", api=True, sensitive=["card"])
def charge(card: str, amount: int = 0) -> None:
    raise ValueError(f"cannot charge {card}")


@job(name="tests.pay", api=True, delivery="at_most_once")
def pay(order: int) -> None:
    ran.append(("pay", order))
    raise ValueError("the bank does not answer")


@job(name="tests.rename", api=True, unique="queued")
def rename(name: str) -> None:
    ran.append(name)


@job(name="tests.measure", api=True)
def measure() -> Any:
    return {"at": date(2026, 3, 29), "size": (1, 2), "part": Decimal("0.5")}


@job(name="tests.brief", api=True, expires_in=60, on_end="tests.swallow")
def brief(name: str) -> None:
    ran.append(name)


@job(name="tests.private")
def private() -> None:
    ran.append("private")


DEFINITIONS = (greet, swallow, charge, pay, rename, measure, brief, private)


def forget() -> None:
    """Take these jobs out of the registry: other tests have other queues."""
    for definition in DEFINITIONS:
        registry.unregister(definition.name)


def offer() -> None:
    """Put them back."""
    for definition in DEFINITIONS:
        registry.register(definition)


forget()
