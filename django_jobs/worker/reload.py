"""`--reload`: a process that watches the code and, when it changes, has the worker stop in order and start again."""

from __future__ import annotations

import os
import threading

from django.utils import autoreload

from django_jobs.worker import forks
from django_jobs.worker.os_signals import die_with_parent

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
    """Replace this process by a new one with the same command line and the changed code."""
    command = autoreload.get_child_arguments()
    os.execv(command[0], command)
