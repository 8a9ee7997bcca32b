"""Time limits of jobs that a test runs on its own thread, where there is no parent process to end them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any


class OverTime(BaseException):
    """Raised inside a job at its time limit.  No Exception, because jobs catch those."""


@contextmanager
def interrupted_after(seconds: float | None) -> Iterator[None]:
    """Raise OverTime in the block after `seconds`, if this is the main thread.

    Uses SIGALRM, as pytest-timeout does: its alarm goes on afterwards, and an earlier one is left alone.  C code that
    does not return to Python is interrupted only when it returns."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    began, armed = monotonic(), True

    def interrupt(*_: Any) -> None:
        if armed:
            raise OverTime

    left, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < left <= seconds:
        yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        armed = False  # an alarm that comes now changes nothing
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (monotonic() - began), 0.001), interval)
