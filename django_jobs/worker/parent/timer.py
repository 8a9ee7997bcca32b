"""The parent's timer: what must happen in time even while the parent waits for a store that does not answer.

A call to the store may take five seconds, and the parent has only one thread, because it forks.  Therefore a signal
handler checks the time limits of jobs during the call, which then continues (PEP 475).  The handler reads shared memory
and kills processes; no code that it may interrupt does either.  The handler also ends a stop that takes too long.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

#: Seconds between two checks during a call.
INTERVAL = 0.25


class ParentTimer:
    """Call `install()` first; the timer runs during `looking()` and after `end_at(moment)`."""

    def __init__(self, look: Callable[[float], None], last_resort: Callable[[], None]) -> None:
        """`look(now)` enforces the time limits; `last_resort()` ends this process."""
        self.look, self.last_resort = look, last_resort
        #: when to call `last_resort` (monotonic); None: never.
        self._ends_at: float | None = None
        self._looking = False

    def install(self) -> None:
        """Take over SIGALRM."""
        signal.signal(signal.SIGALRM, self._ring)

    def end_at(self, moment: float | None) -> None:
        """End the process at that time (monotonic), whatever the store or this process is doing.  None: do not."""
        self._ends_at = moment
        self._set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Check the time limits while the body of the `with` statement calls the store."""
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
