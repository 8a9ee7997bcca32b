"""A counter in a shared file, bumped by the no-op jobs of every system and read by the one who measures.

Both must cost next to nothing: what they take of the two cores is missing to the system that is measured.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import threading
from pathlib import Path

#: Numbers in the file; the first says how many of the others were given to threads, which so need no lock.
NUMBERS = 8192


class Counter:
    """Sum of the numbers of all threads of all processes that opened the same file."""

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
        """Systems that fork for every job come round to the first again, long after its thread has ended."""
        with open(self._path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._numbers[0] += 1
            return 1 + (self._numbers[0] - 1) % (NUMBERS - 1)

    def total(self) -> int:
        """The sum now."""
        return sum(self._numbers[1 : 1 + min(self._numbers[0], NUMBERS - 1)])

    def reset(self) -> None:
        """Back to zero; only while nobody bumps."""
        for i in range(NUMBERS):
            self._numbers[i] = 0


counter = Counter(os.environ.get("BENCH_COUNTER", Path(tempfile.gettempdir()) / "django-jobs-bench-counter"))
