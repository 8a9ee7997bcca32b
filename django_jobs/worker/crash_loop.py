"""When children die faster than they can be of use: pauses, then giving up.  Pure."""

from __future__ import annotations

from collections import deque

#: So many deaths in so many seconds are a loop.
DEATHS, WINDOW = 10, 10.0
#: Seconds of the first pause; each further one is twice as long.
FIRST_PAUSE = 0.5
#: Loops in a row after which the parent gives up: whoever started it (systemd, Kubernetes) must see it.
MOST_LOOPS = 5


class CrashLoop:
    """Told of every death that no job can be blamed for; says how long to wait before the next child."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque()
        self._loops = 0
        self._last = 0.0

    def died(self, now: float) -> float:
        """A child died.  Returns the seconds to wait before the next is started; 0 while this is no loop."""
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
        """The last death was a job's doing."""
        if self._deaths:
            self._deaths.pop()

    @property
    def is_hopeless(self) -> bool:
        return self._loops >= MOST_LOOPS
