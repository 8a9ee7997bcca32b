"""Retries while a store cannot be reached: growing pauses, and one log line per process and outage."""

from __future__ import annotations

import logging
import os
import random
from math import inf
from threading import Lock
from time import monotonic

from django_jobs.exceptions import StoreUnavailable

logger = logging.getLogger("django_jobs.worker")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
#: Seconds after the end of an outage in which a first failure is part of it: a call that failed before the store was
#: back, whose thread was held up.  If the failures go on for longer, they are another outage, and it is logged.
SAME_OUTAGE = 1.0


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
        if isinstance(error, StoreUnavailable):
            cut_off.add(self, error)
        else:
            if not self.is_on:
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
        self._pause = 0.0
        return cut_off.remove(self)


class CutOff:
    """The callers in this process that cannot reach the store.  The first one logs the outage for all, and the last one
    logs its end.

    The price: if another server of a Cluster falls silent during the outage, this is logged at DEBUG only."""

    def __init__(self) -> None:
        self._who: set[RetryState] = set()
        #: held also while `is_on` of a caller changes, because several threads may share the caller.
        self._lock = Lock()
        #: a caller in this process has reached the store: before that, nothing can answer again.
        self.has_answered = False
        #: this outage is in the log; when the last one that was logged ended (monotonic).
        self._is_logged, self._ended_at = False, -inf

    def add(self, retry_state: RetryState, error: StoreUnavailable) -> None:
        """Note that the caller cannot reach the store."""
        with self._lock:
            is_new = not retry_state.is_on
            if not is_new and retry_state not in self._who:
                return  # it failed before for another reason, and has said so
            retry_state.is_on = True
            self._who.add(retry_state)
            is_first = not self._is_logged and monotonic() - self._ended_at > SAME_OUTAGE
            self._is_logged = self._is_logged or is_first
        if is_first or is_new:
            logger.log(
                logging.ERROR if is_first else logging.DEBUG,
                "%s: the store does not answer. Jobs wait, and none is lost. Work continues when the store answers. %s",
                retry_state.who,
                error,
            )

    def remove(self, retry_state: RetryState) -> bool:
        """Note that the caller's call worked.  Returns whether this ends its outage; False if another thread was
        first."""
        with self._lock:
            if not retry_state.is_on:
                return False
            retry_state.is_on = False
            was_cut_off = retry_state in self._who
            self._who.discard(retry_state)
            is_last = was_cut_off and self._is_logged and not self._who
            if is_last:
                self._is_logged, self._ended_at = False, monotonic()
            is_first = was_cut_off and not self.has_answered
            self.has_answered = self.has_answered or (was_cut_off and not self._who)
        if not was_cut_off:  # its failure had another cause
            logger.warning("%s works again", retry_state.who)
            return True
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
        self._is_logged, self._ended_at = False, -inf


cut_off = CutOff()
os.register_at_fork(after_in_child=cut_off.forget)
