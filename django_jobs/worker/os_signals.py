"""Everything about operating-system signals.  Handlers only note the signal; loops act on it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

#: Seconds after the first order to stop in which another is the same one: a terminal or `timeout` tells the whole
#: process group, and a supervisor in it passes on what it got.  Who means "now" has to wait as long.
SAME_ORDER = 0.5

#: Orders to stop.  SIGHUP is what a terminal says that is closed, SIGQUIT what some supervisors say instead of SIGTERM:
#: by default they would end this process at once, and its jobs would be charged with a crash.
STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Signals:
    """The signals this process got: `stops` counts orders to stop; a byte on `fileno()` wakes the loop up."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.stops = 0
        self._first_stop = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def install(self, *, for_parent: bool) -> None:
        """Take over the handlers of this process; SIGCHLD only in a parent."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOPS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._stop)
        # Ctrl-C reaches a whole terminal: a child leaves it to its parent to say what follows.
        signal.signal(signal.SIGINT, self._stop if for_parent else self._note)
        signal.signal(signal.SIGCHLD, self._note if for_parent else signal.SIG_DFL)
        if not for_parent:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def ignore(self) -> None:
        """At the very end: one more SIGTERM must not turn an orderly exit into a killed process."""
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def wake(self) -> None:
        """As if a signal had come: for other threads."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # the pipe is full of reasons to wake up

    def clear(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while os.read(self._read, 1024):
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        """In a forked process: the pipe of another is not ours."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        now = self.clock()
        if not self.stops:
            self._first_stop = now
        elif now - self._first_stop < SAME_ORDER:
            return
        self.stops += 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Only the byte on the pipe matters."""


def die_with_parent(parent: int) -> None:
    """From now on this process gets SIGKILL when its parent ends, however that ends (Linux)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it ended before we asked


def kill_group(pid: int) -> None:
    """SIGKILL the process and what its jobs have started: it leads a process group (see child.py)."""
    kill(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nothing is left of it (PermissionError: macOS, where only zombies are)


def kill(pid: int) -> None:
    """SIGKILL, if that process still is."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
