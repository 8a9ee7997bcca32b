"""Waiting for something to become true, with a deadline: the only way these tests let time pass."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

#: Seconds after which nothing is waited for any more, unless the work is longer.  Against hanging only, and the same on
#: every machine: what must come in time, a test measures with the fixture `pace`.
PATIENCE = 120.0


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = PATIENCE, every: float = 0.02) -> T:
    """Return the first true value of `condition`; fail with `what` and the last value after PATIENCE or longer."""
    patience = max(seconds, PATIENCE)
    never, ends = Event(), monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if monotonic() > ends:
            raise AssertionError(f"not within {patience:g} s: {what} (last: {value!r})")
        never.wait(every)
