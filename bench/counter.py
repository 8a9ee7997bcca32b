"""A counter in a shared file: the no-op jobs of every system increment it, and the measuring process reads it.

Both must cost almost nothing: the time they take from the two cores is missing for the measured system.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading
from pathlib import Path

#: Numbers in the file.  The first is how many of the others were assigned to threads, which therefore need no lock.
NUMBERS = 8192


class Counter:
    """The sum of the numbers of all threads of all processes that opened the same file."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        with open(path, "ab") as file:
            file.truncate(NUMBERS * 8)
        with open(path, "r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), NUMBERS * 8)).cast("Q")
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._local = threading.local()

    def bump(self) -> None:
        """Add one."""
        try:
            self._numbers[self._local.slot] += 1
        except AttributeError:
            self._local.slot = self._take_slot()
            self._numbers[self._local.slot] += 1

    def _take_slot(self) -> int:
        """Assign a number.  With a process per job the numbers are used again, long after their threads ended."""
        with open(self._path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._numbers[0] += 1
            return 1 + (self._numbers[0] - 1) % (NUMBERS - 1)

    def total(self) -> int:
        """Return the current sum."""
        return sum(self._numbers[1 : 1 + min(self._numbers[0], NUMBERS - 1)])

    def reset(self) -> None:
        """Set all numbers to zero; only while no process increments them."""
        for i in range(NUMBERS):
            self._numbers[i] = 0


counter = Counter(
    os.environ.get("BENCH_COUNTER", Path(tempfile.gettempdir()) / f"django-jobs-bench-counter-{os.getuid()}")
)
