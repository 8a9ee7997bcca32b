"""Patience with a store that cannot be reached: growing pauses, and one log line per outage."""

from __future__ import annotations

import logging
import random

logger = logging.getLogger("django_jobs.worker")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Outage:
    """One who calls the store and may fail: says so once, waits longer each time, says when it is over."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._pause = 0.0

    @property
    def is_on(self) -> bool:
        return self._pause > 0

    def failed(self, error: Exception) -> float:
        """The call failed.  Returns the seconds to wait before the next."""
        if not self._pause:
            logger.error("%s: the store does not answer, trying again until it does: %s", self.who, error)
        self._pause = min(max(self._pause * 2, SHORTEST_PAUSE), LONGEST_PAUSE)
        # Jitter: a whole fleet has lost its store at the same moment and must not come back at the same moment.
        return self._pause * (0.5 + random.random() / 2)

    def worked(self) -> bool:
        """The call worked.  Returns whether this ends an outage."""
        if not self._pause:
            return False
        self._pause = 0.0
        logger.warning("%s: the store answers again", self.who)
        return True
