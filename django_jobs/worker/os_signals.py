"""Operating-system signals.  Handlers only note the signal; the loops of the processes act on it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType

from django_jobs.runtime import early_orders

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

#: Seconds after the first order to stop in which further ones count as the same order: a terminal or `timeout` signals
#: the whole process group, and a service manager in it may pass its signal on.  A second order, which means "stop now",
#: has to come later than this.
SAME_ORDER = 0.5

#: Orders to stop.  A terminal that closes sends SIGHUP, and some service managers send SIGQUIT instead of SIGTERM.  By
#: default both end this process at once, and its jobs would be charged with a crash.
STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Signals:
    """The signals that this process got: `stops` counts orders to stop; a byte on `fileno()` wakes the loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.stops = 0
        #: when the last order that counted came, by the clock.
        self.stopped_at = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def install(self, *, for_parent: bool) -> None:
        """Install the signal handlers of this process; that of SIGCHLD only in a parent."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOPS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._stop)
        # Ctrl-C reaches every process of a terminal: a child waits for its parent's decision.
        signal.signal(signal.SIGINT, self._stop if for_parent else self._note)
        signal.signal(signal.SIGCHLD, self._note if for_parent else signal.SIG_DFL)
        if not for_parent:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        elif early_orders.came:
            self._stop(signal.SIGTERM, None)
            self.wake()

    def ignore(self) -> None:
        """Ignore further orders to stop: at the very end, a SIGTERM must not turn an orderly exit into a kill."""
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def wake(self) -> None:
        """Wake the loop as a signal would.  Other threads call this."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # the pipe is full: the loop wakes anyway

    def clear(self) -> None:
        """Discard the bytes that woke the loop."""
        try:
            while os.read(self._read, 1024):
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the pipe in a forked process: it belongs to the parent."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        now = self.clock()
        if self.stops and now - self.stopped_at < SAME_ORDER:
            return
        self.stopped_at = now
        self.stops += 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Only the byte on the pipe matters."""


def die_with_parent(parent: int) -> None:
    """From now on this process gets SIGKILL when its parent ends in any way (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it ended before we asked


def kill_group(pid: int) -> None:
    """SIGKILL the process and those that its jobs have started: it leads a process group (see child/process.py)."""
    kill(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # the group is gone (PermissionError: on macOS, if only zombies are left)


def kill(pid: int) -> None:
    """SIGKILL the process if it still exists."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
