"""What happens when children die as soon as they start: pauses, and then the worker gives up.  No I/O, no clock."""

from __future__ import annotations

from collections import deque

#: DEATHS deaths within WINDOW seconds are a crash loop.
DEATHS, WINDOW = 10, 10.0
#: Seconds of the first pause; each further one is twice as long.
FIRST_PAUSE = 0.5
#: Crash loops in a row after which the parent gives up, so that the service manager (systemd, Kubernetes) notices.
MOST_LOOPS = 5


class CrashLoop:
    """Counts the deaths of children that no job has caused, and decides how long to wait before the next child."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque()
        self._loops = 0
        self._last = 0.0

    def died(self, now: float) -> float:
        """Count the death of a child.  Returns the seconds to wait before the next is started; 0 if this is not a crash
        loop."""
        if now - self._last > 6 * WINDOW:
            self._loops = 0
        self._last = now
        self._deaths.append(now)
        while now - self._deaths[0] > WINDOW:
            self._deaths.popleft()
        if len(self._deaths) < DEATHS:
            return 0.0
        self._deaths.clear()
        self._loops += 1
        return FIRST_PAUSE * float(2 ** (self._loops - 1))

    def forgive(self) -> None:
        """Do not count the last death: a job caused it."""
        if self._deaths:
            self._deaths.pop()

    @property
    def is_hopeless(self) -> bool:
        return self._loops >= MOST_LOOPS
