"""Which process holds the lock of a SQLite file: a thread that stops in the middle of a transaction stops all
writers.
"""

from __future__ import annotations

import os

#: The byte of the -shm file that a writer locks (WAL_WRITE_LOCK in SQLite's file format).
WRITE_LOCK = 120


def writer_of(path: str) -> int:
    """Return the process that is writing to the file at this moment; 0 = none, or /proc does not show it.

    This does not use F_GETLK: closing a second descriptor of the file would drop SQLite's locks in this process."""
    try:
        found = os.stat(f"{path}-shm")
        with open("/proc/locks") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        # 7: POSIX  ADVISORY  WRITE 1234 fd:01:5678 120 120        (a process that waits has -> after the number)
        words = line.split()
        if words[1] != "POSIX" or words[3] != "WRITE" or words[5] != wanted:
            continue
        if int(words[6]) <= WRITE_LOCK and (words[7] == "EOF" or int(words[7]) >= WRITE_LOCK):
            return max(int(words[4]), 0)
    return 0
