"""How many jobs to claim at a time: as many as take about 20 ms, estimated from earlier jobs.  No I/O, no clock."""

from __future__ import annotations

#: Seconds for which a batch should occupy its thread: jobs share round trips, and none waits long behind another.
TARGET_SECONDS = 0.020
#: Most jobs in a batch.  A larger claim would block Redis for other clients for milliseconds.
LARGEST = 250
#: Seconds assumed for a job of a queue whose jobs have not run yet: 8 of them fill the target.
_UNKNOWN = TARGET_SECONDS / 8


class BatchSizer:
    """Keeps, per queue, a decaying average of how long a job occupies a thread."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def size(self, queue: str) -> int:
        """Return how many jobs of this queue to claim now, 1…LARGEST."""
        average = self._average.get(queue, _UNKNOWN)
        return LARGEST if average * LARGEST <= TARGET_SECONDS else max(1, int(TARGET_SECONDS / average))

    def observe(self, queue: str, seconds: float, jobs: int) -> None:
        """Learn that `jobs` jobs took `seconds` together.  A batch of twenty replaces most of the old average."""
        if jobs > 0:
            average = self._average.get(queue, _UNKNOWN)
            self._average[queue] = average + (seconds / jobs - average) * (1 - 0.9**jobs)
