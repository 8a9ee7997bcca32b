"""Waiting for something to become true, with a deadline: the only way these tests let time pass."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

#: Seconds in tests are those of a machine at ease; the one that runs them may be this many times slower.  A bound is
#: what is promised, which no machine changes, and this many times the work: `assert took < LEASE + 5 + SLOW * 2`.
SLOW = 4


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = 30.0, every: float = 0.02) -> T:
    """Return the first true value of `condition`; fail with `what` and the last value after `seconds`, times SLOW.

    This is against waiting for ever: what must come in time, a test measures."""
    never, ends = Event(), monotonic() + SLOW * seconds
    while True:
        value = condition()
        if value:
            return value
        if monotonic() > ends:
            raise AssertionError(f"not within {SLOW * seconds} s: {what} (last: {value!r})")
        never.wait(every)
