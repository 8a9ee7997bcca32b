"""Jobs of several kinds, which both versions know."""

from __future__ import annotations

from datetime import date
from typing import Any

from django_jobs import job


@job(name="upgrade.plain")
def plain(n: int, more: Any = None) -> Any:
    return [n, more]


@job(name="upgrade.timed", timeout=60, queue="other")
def timed(n: int) -> int:
    return n


@job(name="upgrade.fails_once", takes_context=True, max_attempts=3, backoff=[0])
def fails_once(ctx: Any, n: int) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return n


@job(name="upgrade.unique", unique="running", max_concurrency=2)
def unique(n: int) -> str:
    return date(2026, 1, 1).isoformat()


@job(name="upgrade.once", delivery="at_most_once")
def once(n: int) -> int:
    return n


@job(name="upgrade.dies", max_attempts=1)
def dies(n: int) -> None:
    raise ValueError("an odd one" if n % 2 else "an even one")
