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
import weakref
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
#: Seconds.  A fork waits for at most this long for `put_off`: a store that is away must not hold up a job that forks.
_LONGEST_WAIT = 1.0
#: Guards `_putting_off`, the number of threads that put a fork off.
_condition = threading.Condition()
_putting_off = 0


def guard(undo: Callable[[], None]) -> None:
    """From now on, a copy of this process calls `undo()` before anything else.  `undo` must not wait for a lock: a
    thread that the copy does not have may hold it."""
    global _undo
    _undo = undo


@contextmanager
def put_off() -> Iterator[None]:
    """Let other threads' forks wait: what is made here belongs to no object yet, so `undo` could not close it."""
    global _putting_off
    with _condition:
        _putting_off += 1
    try:
        yield
    finally:
        with _condition:
            _putting_off -= 1
            _condition.notify_all()


@contextmanager
def ours() -> Iterator[None]:
    """Mark a fork by this package: its child is not such a copy."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


def leave_to_parent() -> None:
    """In a child of ours that will run its `atexit` handlers: what the parent made before the fork is the parent's to
    clean up.  Otherwise the first child to end would remove temporary folders that all use, and end processes that the
    parent started with multiprocessing."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False
    if processes := sys.modules.get("multiprocessing.process"):
        getattr(processes, "_children", set()).clear()


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
        _condition.acquire()
        _condition.wait_for(lambda: not _putting_off, _LONGEST_WAIT)
        _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _in_parent() -> None:
    if getattr(_thread, "mask", None) is not None:
        _condition.release()
        _unblock()


def _unblock() -> None:
    mask, _thread.mask = _thread.mask, None
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_copy() -> None:
    global is_copy, _undo, _condition, _putting_off
    _condition, _putting_off = threading.Condition(), 0
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


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_copy)
