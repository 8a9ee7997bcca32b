"""Tells a slow machine from a slow program, so that a bound of time in a test can be the promise itself.

A process beside the tests runs a short calculation again and again and notes how long it took by the wall clock and how
much of a processor it got.  On a quiet machine the two are equal, however fast or slow the processor is.  On a crowded
one the difference is the time that the machine withheld, and only that much is forgiven.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from threading import Thread
from time import monotonic

#: Calculate for 20 ms of processor time, five times a second: a tenth of one processor.  It ends with its reader.
_METER = """
import time
due = time.monotonic()
while True:
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.02:
        sum(range(1000))
    wall, cpu = time.monotonic() - began, time.thread_time() - used
    print(began, wall, cpu, began - due, flush=True)
    due = time.monotonic() + 0.18
    time.sleep(0.18)
"""
#: A script that took 20 ms of a server's time at the best moments of a machine, and 35 ms at others.  A script of ours
#: varies as much, so that a test compares the two at the same moment.
TWENTY_MS = "local sum = 0 for i = 1, 1500000 do sum = sum + i % 7 end return sum"
#: A machine that withholds more than this is too slow to judge the program, and the test fails.
MOST_FORGIVEN = 1.0
#: A promise of fewer seconds is judged in a test that runs alone.
SECONDS = 2.0


class Pace:
    """Judges durations; the calibration runs from the first test that wants it to the end of the run."""

    def __init__(self) -> None:
        #: (monotonic time, share of the processor that was withheld, seconds of the longest stall), newest last: five
        #: minutes of them.
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=1500)
        #: The shortest promise that the running test may judge, in seconds.
        self.least = 0.0
        self._meter = subprocess.Popen([sys.executable, "-c", _METER], stdout=subprocess.PIPE, text=True)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._meter.stdout is not None
        for line in self._meter.stdout:
            began, wall, cpu, late = map(float, line.split())
            self._samples.append((began, max(0.0, 1 - cpu / wall), max(wall - cpu, late)))

    def withheld(self, began: float, ended: float) -> float:
        """Seconds between these two times (monotonic) that the machine gave to others."""
        shares = [share for at, share, _ in list(self._samples) if began - 0.2 <= at <= ended]
        return (ended - began) * sum(shares) / len(shares) if shares else 0.0

    def longest_stall(self, began: float) -> float:
        """Seconds for which the machine let the calibration wait at a time, at most, since `began` (monotonic)."""
        return max((stall for at, _, stall in list(self._samples) if at >= began - 0.2), default=0.0)

    def within(self, began: float, promise: float, what: str = "") -> float:
        """Fail unless at most `promise` seconds have passed since `began` (monotonic).  Returns the seconds."""
        return self.took(monotonic() - began, promise, what)

    def took(self, seconds: float, promise: float, what: str = "", ended: float | None = None) -> float:
        """Fail unless `seconds`, which ended at this time (monotonic; None = now), are at most `promise`.  Returns
        them."""
        assert promise >= self.least, f"a promise of {promise:g} s is judged alone: mark the test `timed`"
        if seconds > promise:
            ended = monotonic() if ended is None else ended
            withheld = self.withheld(ended - seconds, ended)
            forgiven = min(withheld, MOST_FORGIVEN * promise)
            assert seconds <= promise + forgiven, (
                f"{seconds:.2f} s, promised within {promise:g} s ({what}); the machine withheld {withheld:.2f} s"
            )
        return seconds

    def close(self) -> None:
        """End the calibration."""
        self._meter.kill()
        self._meter.wait()
        self._reader.join()
        assert self._meter.stdout is not None
        self._meter.stdout.close()
