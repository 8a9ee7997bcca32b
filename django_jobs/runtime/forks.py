"""Copies of a process of ours that are not ours: a job calls os.fork(), or uses multiprocessing.

Such a copy inherits our signal handlers (it would note SIGTERM and go on), our channel to the parent, and code that
would claim and settle jobs when the job's function returns.  Nothing of that survives: see `guard`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

#: Is this process a copy that a job, or another foreign hand, has made of one of ours?
is_copy = False

#: What is back at its default in a copy.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)
_undo: Callable[[], None] | None = None
_ours = False
_thread = threading.local()


def guard(undo: Callable[[], None]) -> None:
    """From now on, a copy of this process calls `undo()` first of all: it must wait for nothing, locks may be held by
    threads that the copy does not have."""
    global _undo
    _undo = undo


@contextmanager
def ours() -> Iterator[None]:
    """Round a fork of ours, whose child knows what it is."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


def leave(error: BaseException | None = None) -> NoReturn:
    """End this copy, where it would return into our code: with the status that a script would have."""
    status = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def leave_if_copy() -> None:
    """In a `finally` behind code of a job: `leave` with its error if this is a copy."""
    if is_copy:
        leave(sys.exc_info()[1])


def _before() -> None:
    # A signal that comes between the fork and the change of handlers would be lost: multiprocessing ends its
    # processes with SIGTERM, and waits for them.
    if _undo is not None and not _ours:
        _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _unblock() -> None:
    mask = getattr(_thread, "mask", None)
    if mask is not None:
        _thread.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_copy() -> None:
    global is_copy, _undo
    undo, _undo = _undo, None
    if undo is None or _ours:
        return
    is_copy = True
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with suppress(Exception):
        undo()
    _unblock()


os.register_at_fork(before=_before, after_in_parent=_unblock, after_in_child=_in_copy)
