"""How many jobs to claim at a time: as many as take about 20 ms, judged by the jobs before.  Pure."""

from __future__ import annotations

#: A batch should occupy its thread about this long: round trips are shared, and nobody waits long behind another.
TARGET_SECONDS = 0.020
#: Of jobs that take next to nothing; more would keep Redis from others for milliseconds.
LARGEST = 250
#: What is assumed of a job never seen: 8 of them fill the target.
_UNKNOWN = TARGET_SECONDS / 8


class BatchSizer:
    """A decaying average, per queue, of how long jobs occupied a thread."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def size(self, queue: str) -> int:
        """How many jobs of this queue to claim now, 1…LARGEST."""
        average = self._average.get(queue, _UNKNOWN)
        return LARGEST if average * LARGEST <= TARGET_SECONDS else max(1, int(TARGET_SECONDS / average))

    def observe(self, queue: str, seconds: float, jobs: int) -> None:
        """`jobs` jobs took `seconds` together.  A batch of twenty replaces most of what was believed before."""
        if jobs > 0:
            average = self._average.get(queue, _UNKNOWN)
            self._average[queue] = average + (seconds / jobs - average) * (1 - 0.9**jobs)
