"""Retries while a store cannot be reached: growing pauses, and one log line per process and outage."""

from __future__ import annotations

import logging
import os
import random
from threading import Lock

from django_jobs.exceptions import StoreUnavailable

logger = logging.getLogger("django_jobs.worker")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class RetryState:
    """The state of one caller of the store: each failure makes its pause longer, and an outage is logged once.

    `who` names the caller in the log.  `of_store`: what it calls is the store."""

    def __init__(self, who: str, *, of_store: bool = True) -> None:
        self.who, self.of_store = who, of_store
        #: the last call failed.
        self.is_on = False
        self._pause = 0.0

    def failed(self, error: Exception) -> float:
        """Note that the call failed.  Returns the seconds to wait before the next."""
        if not self.is_on:
            if isinstance(error, StoreUnavailable):
                cut_off.add(self, error)
            else:
                logger.error("%s failed and is tried again until it works: %s", self.who, error)
        self.is_on = True
        self._pause = min(max(self._pause * 2, SHORTEST_PAUSE), LONGEST_PAUSE)
        # Jitter: all workers lost the store at the same moment and must not all return at the same moment.
        return self._pause * (0.5 + random.random() / 2)

    def worked(self) -> bool:
        """Note that the call worked.  Returns whether this ends an outage."""
        if not self.is_on:
            if self.of_store and not cut_off.has_answered:
                cut_off.note_answer()
            return False
        self.is_on, self._pause = False, 0.0
        if not cut_off.remove(self):
            logger.warning("%s works again", self.who)
        return True


class CutOff:
    """The callers in this process that cannot reach the store.  The first one logs the outage for all, and the last one
    logs its end.

    The price: if another server of a Cluster falls silent during the outage, this is logged at DEBUG only."""

    def __init__(self) -> None:
        self._who: set[RetryState] = set()
        self._lock = Lock()
        #: a caller in this process has reached the store: before that, nothing can answer again.
        self.has_answered = False

    def add(self, retry_state: RetryState, error: StoreUnavailable) -> None:
        with self._lock:
            is_first = not self._who
            self._who.add(retry_state)
        logger.log(
            logging.ERROR if is_first else logging.DEBUG,
            "%s: the store does not answer. Jobs wait, and none is lost. Work continues when the store answers. %s",
            retry_state.who,
            error,
        )

    def remove(self, retry_state: RetryState) -> bool:
        """Note that the caller can reach the store again.  False: its failure had another cause."""
        with self._lock:
            if retry_state not in self._who:
                return False
            self._who.remove(retry_state)
            is_last = not self._who
            is_first, self.has_answered = not self.has_answered, self.has_answered or is_last
        what = "answers, and work begins" if is_first else "answers again, and work continues"
        logger.log(logging.WARNING if is_last else logging.DEBUG, "%s: the store %s", retry_state.who, what)
        return True

    def note_answer(self) -> None:
        """A caller that had no failure has reached the store.  While another one is cut off, that says nothing."""
        with self._lock:
            self.has_answered = not self._who

    def forget(self) -> None:
        """Start anew in a forked child, which logs for itself.  A thread that it does not have may hold the lock."""
        self._who, self._lock = set(), Lock()


cut_off = CutOff()
os.register_at_fork(after_in_child=cut_off.forget)
