"""Where a queued job waits.  Pure."""

from __future__ import annotations

from enum import StrEnum


class Lane(StrEnum):
    """`alone` holds jobs that must have a process to themselves while they run: those with a time limit (killing
    the process must harm nobody else), those delivered at most once (claimed one by one, so that a dead worker
    had started every job it held), and those whose last worker died (so that only the guilty is counted).  Where it
    died whole, parent and all, they are suspects, of which each worker runs one at a time, for the same reason.
    """

    SHARED = "shared"
    ALONE = "alone"
    #: `alone` without its suspects.
    CLEAR = "clear"
