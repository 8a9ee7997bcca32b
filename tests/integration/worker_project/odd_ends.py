"""Jobs whose code raises once more while it is worked out how their attempts end."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from django.utils.functional import SimpleLazyObject

from django_jobs import JobContext, Retry, Snooze, job
from tests.integration.worker_project.async_jobs import wait_for


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


def leave(*args: Any) -> Any:
    raise SystemExit(1)


def small(number: int) -> int:
    return {1: 1}[number]


@job(name="returns_lazy")
def returns_lazy() -> Any:
    return SimpleLazyObject(leave)


@job(name="raises_unprintable", max_attempts=1)
def raises_unprintable() -> None:
    raise Unprintable


@job(name="raises_frozen", max_attempts=1)
def raises_frozen() -> None:
    raise FrozenError(7)


@job(name="backoff_leaves", max_attempts=2, backoff=leave)
def backoff_leaves() -> None:
    raise ValueError("no paper")


@job(name="retries_in_ages")
def retries_in_ages(whole: bool) -> None:
    raise Retry(in_=10**400 if whole else 1e306)


@job(name="snoozes_for_ages")
def snoozes_for_ages(whole: bool) -> None:
    raise Snooze(in_=10**400 if whole else 1e306)


@job(name="retries_without_key", max_attempts=2, max_concurrency=1, concurrency_key=small)
def retries_without_key(number: int) -> None:
    raise Retry(in_=5, args=(2,))


#: What the first attempt of `leaves_a_thread` has left behind.
left: list[threading.Thread] = []


@job(name="leaves_a_thread", takes_context=True, backoff=[0])
def leaves_a_thread(ctx: JobContext, goes_on: str) -> str:
    """The first attempt fails, and its thread checks in when the second one runs."""
    if ctx.attempt == 1:
        left.append(threading.Thread(target=lambda: (wait_for(goes_on), ctx.checkin("late"))))
        left[0].start()
        raise ValueError("the first time")
    open(goes_on, "w").close()
    left[0].join()
    return f"stops: {ctx.stop_reason}"
