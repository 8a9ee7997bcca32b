"""The parent's alarm clock: what must happen in time also while it waits for a store that does not answer.

A call to the store may take five seconds, and the parent has one thread, because it forks.  So the time limits of jobs
are looked at from a signal handler meanwhile: the call goes on behind it (PEP 475).  The handler reads shared memory
and kills, which no code it may interrupt is in the middle of.  The end of a stop comes the same way.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

#: Seconds between two looks during a call.
INTERVAL = 0.25


class Alarm:
    """`install()` first; the timer runs during `looking()` and where a last resort is wanted."""

    def __init__(self, look: Callable[[float], None], last_resort: Callable[[], None]) -> None:
        """`look(now)` keeps the time limits; `last_resort()` ends this process."""
        self.look, self.last_resort = look, last_resort
        #: monotonic; None: not wanted.
        self._ends_at: float | None = None
        self._looking = False

    def install(self) -> None:
        """Take over SIGALRM."""
        signal.signal(signal.SIGALRM, self._ring)

    def end_in(self, seconds: float | None) -> None:
        """Whatever happens to the store or to us: this is when the process ends.  None: no more."""
        self._ends_at = None if seconds is None else monotonic() + seconds
        self._set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Round calls to the store."""
        self._looking = True
        self._set()
        try:
            yield
        finally:
            self._looking = False
            self._set()

    def _set(self) -> None:
        if self._looking:
            signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
        elif self._ends_at is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self._ends_at - monotonic(), 0.001), INTERVAL)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        now = monotonic()
        if self._ends_at is not None and now >= self._ends_at:
            self.last_resort()
        if self._looking:
            self.look(now)
