"""In which lane a queued job waits.  Pure."""

from __future__ import annotations

from enum import StrEnum


class Lane(StrEnum):
    """`alone` holds jobs that must have a process to themselves while they run: those with a time limit (killing the
    process must not harm another job), those delivered at most once (claimed one by one, so that a dead worker had
    started every job it held), and those whose last worker died (so that only the job that caused it is blamed).  If
    the whole worker died, parent and all, its jobs are suspects; each worker runs one suspect at a time, for the same
    reason.
    """

    SHARED = "shared"
    ALONE = "alone"
    #: `alone` without its suspects.
    CLEAR = "clear"
