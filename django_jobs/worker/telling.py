"""Calls the receivers of signals about jobs that ended in this process: on a thread of its own, in their order.

A receiver that is slow or hangs must not hold up the thread that runs jobs and hands back claims.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Thread
from time import monotonic

from django_jobs.signals import worker_started, worker_stopped
from django_jobs.worker import database
from django_jobs.worker.fault import end_process
from django_jobs.worker.notices import Notice, send

logger = logging.getLogger("django_jobs.worker")

#: Signals that wait for slow receivers; more are not sent, since the ends of jobs must not wait for them.
MOST = 10_000
#: Seconds that receivers of worker_stopped have.
STOPPED_TIME = 5.0
#: Seconds between two lines about those.
_QUIET = 60.0


class Telling:
    """Shared by all threads of a child."""

    def __init__(self) -> None:
        self._waiting: deque[Notice] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._busy = False
        #: signals that were not sent because receivers did not keep up.
        self.dropped = 0
        self._said_at: float | None = None

    def deliver(self, notice: Notice) -> None:
        """Have it sent soon."""
        with self._changed:
            if len(self._waiting) >= MOST:
                self._drop(notice)
                return
            self._waiting.append(notice)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="signals", daemon=True)
                self._thread.start()

    def finish(self, timeout: float) -> bool:
        """Wait until all have been sent, at most `timeout` seconds.  False: receivers are still at it."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout):
                return True
            left = len(self._waiting)
        logger.error("Receivers have not returned after %g s: the process ends, %d signals are not sent", timeout, left)
        return False

    def _drop(self, notice: Notice) -> None:
        self.dropped += 1
        if self._said_at is None or monotonic() - self._said_at >= _QUIET:
            self._said_at = monotonic()
            logger.error(
                "Receivers do not keep up: %d signals have not been sent in this process, the last is %s of job %s",
                self.dropped,
                notice.signal,
                notice.id,
            )

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._waiting)
                    self._busy = True
                    notice = self._waiting.popleft()
                database.before_job()  # receivers may use the database
                send(notice)
                if not self._waiting:
                    database.after_job()
        except BaseException:
            end_process()


def say_started(name: str) -> None:
    """The parent begins."""
    worker_started.send_robust(None, name=name)


def say_stopped(name: str) -> None:
    """The parent ends.  A receiver that hangs must not keep it alive."""
    if not worker_stopped.receivers:
        return
    saying = Thread(target=worker_stopped.send_robust, args=(None,), kwargs={"name": name}, daemon=True)
    saying.start()
    saying.join(STOPPED_TIME)
    if saying.is_alive():
        logger.error("A receiver of worker_stopped has not returned after %g s: the worker ends", STOPPED_TIME)
