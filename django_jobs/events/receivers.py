"""Calls the signal receivers for jobs that this process began, ended or learned about: in order, on a separate thread.

A receiver that is slow or hangs must not block a thread that runs jobs and hands back claims, nor a web request.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from threading import Condition, Lock, Thread
from time import monotonic

from django_jobs.events.signal_events import SignalEvent, send
from django_jobs.runtime import database_connections
from django_jobs.runtime.faults import faults_end_process
from django_jobs.signals import worker_started, worker_stopped

logger = logging.getLogger("django_jobs.worker")

#: Most signals that may wait for slow receivers.  Further ones are dropped: the ends of jobs must not wait for them.
MOST = 10_000
#: Seconds that receivers have at the end of a process for the signals that still wait.
LAST_TIME = 4.0
#: Seconds that receivers of worker_stopped have.
STOPPED_TIME = 5.0
#: Seconds between two log lines about dropped signals.
_QUIET = 60.0


class SignalThread:
    """Sends signals on a thread of its own.  All threads of a process share one object."""

    def __init__(self, *, ends_process: bool = True) -> None:
        """`ends_process`: end the process if a receiver raises what none may raise, such as SystemExit.  True in
        workers."""
        self.ends_process = ends_process
        self._waiting: deque[SignalEvent] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._busy = False
        #: signals that were not sent because receivers did not keep up.
        self.dropped = 0
        self._said_at: float | None = None

    def deliver(self, signal_event: SignalEvent) -> None:
        """Send the signal soon, on the thread.  If too many wait, drop it and log that."""
        with self._changed:
            if len(self._waiting) >= MOST:
                self._drop(signal_event)
                return
            self._waiting.append(signal_event)
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def finish(self, timeout: float) -> bool:
        """Wait until all signals are sent, at most `timeout` seconds.  False: some are not sent yet."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout):
                return True
            left = len(self._waiting)
        logger.error("Receivers have not returned after %g s. The process ends. Unsent signals: %d", timeout, left)
        return False

    def _drop(self, signal_event: SignalEvent) -> None:
        self.dropped += 1
        if self._said_at is None or monotonic() - self._said_at >= _QUIET:
            self._said_at = monotonic()
            logger.error(
                "Receivers do not keep up. Signals that this process dropped: %d. The last is %s of job %s",
                self.dropped,
                signal_event.signal,
                signal_event.id,
            )

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="signals", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with faults_end_process(instead=None if self.ends_process else self._go_on):
            self._serve()

    def _go_on(self) -> None:
        logger.critical("A receiver of a signal has ended its thread; a new thread continues", exc_info=True)
        with self._changed:
            self._start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._busy = True
                signal_event = self._waiting.popleft()
            database_connections.before_job()  # receivers may use the database
            send(signal_event)
            if not self._waiting:
                database_connections.after_job()


#: The process id, and the object that all code in that process shares.
_here: tuple[int, SignalThread] | None = None
_lock = Lock()


def use(signal_thread: SignalThread) -> None:
    """Make `telling` the object of the whole process."""
    global _here
    _here = os.getpid(), signal_thread


def here() -> SignalThread:
    """Return the object of this process; make one in a web process or a command.

    At the end of such a process receivers have LAST_TIME."""
    with _lock:
        if _here is None or _here[0] != os.getpid():  # a forked copy does not have the thread of the original process
            use(SignalThread(ends_process=False))
            atexit.register(_finish, os.getpid())
        assert _here is not None
        return _here[1]


def deliver_here(signal_event: SignalEvent) -> None:
    """Send the signal soon, in this process."""
    here().deliver(signal_event)


def _finish(pid: int) -> None:
    if pid == os.getpid():
        here().finish(LAST_TIME)


def say_started(name: str) -> None:
    """Send worker_started: the parent begins."""
    worker_started.send_robust(None, name=name)


def say_stopped(name: str) -> None:
    """Send worker_stopped: the parent ends.  A receiver that hangs must not keep it alive."""
    if not worker_stopped.receivers:
        return
    saying = Thread(target=worker_stopped.send_robust, args=(None,), kwargs={"name": name}, daemon=True)
    saying.start()
    saying.join(STOPPED_TIME)
    if saying.is_alive():
        logger.error("A receiver of worker_stopped has not returned after %g s: the worker ends", STOPPED_TIME)
