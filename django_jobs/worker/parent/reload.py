"""`--reload`: a process that watches the code.  When the code changes, the worker stops in order and starts again."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from time import sleep
from typing import NoReturn, TypeVar

from django.utils import autoreload

from django_jobs.runtime import forks
from django_jobs.worker.os_signals import die_with_parent, kill
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.retry import RetryState

T = TypeVar("T")
logger = logging.getLogger("django_jobs.worker")

#: Django's reloader exits with this status when a file has changed.
CHANGED = 3
#: Seconds until a watcher that ended for another reason is replaced.
AGAIN = 1.0
#: Errors that mean that the system cannot start another process now: this may pass.
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Watcher:
    """The process that watches the code while a worker runs.  It is started as soon as the system can start it, and
    again if it ends without a change."""

    def __init__(self, child_processes: ChildProcesses) -> None:
        self.child_processes = child_processes
        #: process id of the watcher; 0 while there is none.
        self.pid = 0
        self._due = 0.0
        self._no_room = RetryState("Starting the process that watches the code", of_store=False)

    def has_seen_a_change(self, now: float) -> bool:
        """Start or replace the watcher.  Returns True once if the code has changed; the watcher has then ended."""
        status = self.child_processes.foreign.pop(self.pid, None)
        if status is not None:
            self.child_processes.forget(self.pid)
            self.pid = 0
            if status == CHANGED:
                return True
            logger.error("The process that watches the code has ended (status %d): a new one is started", status)
            self._due = now + AGAIN
        if not self.pid and now >= self._due:
            try:
                self.pid, _ = self.child_processes.fork(lambda channel, parent: _watch(parent))
            except OSError as error:
                self._due = now + self._no_room.failed(error)
            else:
                self._no_room.worked()
        return False

    def end(self) -> None:
        """End the watcher, because its worker ends."""
        if self.pid and self.pid not in self.child_processes.foreign:
            kill(self.pid)


def _watch(parent: int) -> NoReturn:
    """Watch the code until it changes; then end this process with CHANGED."""
    status = 1
    try:
        die_with_parent(parent)
        autoreload.get_reloader().run(threading.current_thread())
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 1
    except KeyboardInterrupt:
        status = 0
    finally:
        os._exit(status)


def start_again() -> None:
    """Replace this process by one with the same command line and the changed code, once the code can be loaded."""
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):  # the new process would inherit SIG_IGN
        signal.signal(number, signal.SIG_DFL)
    command = autoreload.get_child_arguments()
    while not _loads(command):
        logger.error("The changed code cannot be loaded: the worker waits for the next change")
        _, status = os.waitpid(_when_there_is_room(_fork_watcher), 0)
        if os.waitstatus_to_exitcode(status) != CHANGED:
            break
    os.execv(command[0], command)


def _loads(command: list[str]) -> bool:
    """Can a process of this project start?  If not, that process writes why to its standard error."""
    if "runworkers" not in command:
        return True  # started by other code: we do not know how to test that
    at = command.index("runworkers")
    probe = [*command[:at], "help", "runworkers"]
    quiet = subprocess.DEVNULL
    return _when_there_is_room(lambda: subprocess.run(probe, stdout=quiet, stdin=quiet, check=False)).returncode == 0


def _fork_watcher() -> int:
    parent = os.getpid()
    with forks.ours():
        pid = os.fork()
    return pid or _watch(parent)


def _when_there_is_room(start: Callable[[], T]) -> T:
    """Call `start()` until the system can start the process.  Blocks: this process has nothing else to do."""
    no_room = RetryState("Starting a process for the changed code", of_store=False)
    while True:
        try:
            started = start()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            sleep(no_room.failed(error))
        else:
            no_room.worked()
            return started
