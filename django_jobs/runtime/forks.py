"""Copies of a worker process that a job makes: it calls os.fork(), or uses multiprocessing.

Such a copy inherits the signal handlers (it would note SIGTERM and continue), the channel to the parent, and code that
would claim and settle jobs when the job's function returns.  All of that is removed in the copy: see `guard`.
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

#: Is this process a copy of a worker process, made by a job or other code outside this package?
is_copy = False

#: Signals whose handlers are reset to the default in a copy.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)
_undo: Callable[[], None] | None = None
_ours = False
_thread = threading.local()


def guard(undo: Callable[[], None]) -> None:
    """From now on, a copy of this process calls `undo()` before anything else.  `undo` must not wait for a lock: a
    thread that the copy does not have may hold it."""
    global _undo
    _undo = undo


@contextmanager
def ours() -> Iterator[None]:
    """Mark a fork by this package: its child is not such a copy."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


def leave(error: BaseException | None = None) -> NoReturn:
    """End this copy before it returns into the worker's code, with the exit status that a script would have.

    For a `finally` after a job's code, if `is_copy`.  `error`: None means the one being handled, if there is one."""
    status, error = 0, sys.exc_info()[1] if error is None else error
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _before() -> None:
    # A signal between the fork and the reset of the handlers would be lost.  multiprocessing ends its processes with
    # SIGTERM and waits for them.
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
