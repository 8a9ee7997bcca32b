"""`--reload`: a process that watches the code and, when it changes, has the worker stop in order and start again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading

from django.utils import autoreload

from django_jobs.worker import forks
from django_jobs.worker.os_signals import die_with_parent

logger = logging.getLogger("django_jobs.worker")

#: Django's reloader exits with this when a file has changed.
CHANGED = 3


def watch() -> int:
    """Fork the watcher.  Returns its process id; it exits with CHANGED."""
    parent = os.getpid()
    with forks.ours():
        pid = os.fork()
    if pid:
        return pid
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
    """Replace this process by one with the same command line and the changed code, as soon as that can be loaded."""
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):  # what is ignored stays so in the new process
        signal.signal(number, signal.SIG_DFL)
    command = autoreload.get_child_arguments()
    while not _loads(command):
        logger.error("The changed code cannot be loaded: the worker waits for the next change")
        _, status = os.waitpid(watch(), 0)
        if os.waitstatus_to_exitcode(status) != CHANGED:
            break
    os.execv(command[0], command)


def _loads(command: list[str]) -> bool:
    """Does a process of this project start?  It says why not on its standard error."""
    if "runworkers" not in command:
        return True  # started by other code, whose way we do not know
    at = command.index("runworkers")
    probe = [*command[:at], "help", "runworkers"]
    return subprocess.run(probe, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False).returncode == 0
