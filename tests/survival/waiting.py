"""Waiting for something to become true, with a deadline: the only way these tests let time pass."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = 30.0, every: float = 0.02) -> T:
    """Return the first true value of `condition`; fail with `what` and the last value after `seconds`."""
    never, ends = Event(), monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if monotonic() > ends:
            raise AssertionError(f"not within {seconds} s: {what} (last: {value!r})")
        never.wait(every)
