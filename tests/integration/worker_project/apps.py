from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from django.apps import AppConfig


class WorkerProject(AppConfig):
    name = "tests.integration.worker_project"

    def ready(self) -> None:
        if how := os.environ.get("WORKER_RECEIVERS"):
            from tests.integration.worker_project.receivers import listen

            listen(*how.split(":", 1))
        if os.environ.get("RENEWS_ONE"):
            from django_jobs.stores.redis import Store

            Store.renewed_at_once = 1
        if os.environ.get("PRINTS"):
            print("some text that stays in the buffer")
        if os.environ.get("STOPPED_EARLY"):
            os.kill(os.getpid(), signal.SIGTERM)
        if notes := os.environ.get("CHILD_NOTES"):
            from tests.integration.worker_project.receivers import note_children

            note_children(notes)
        if seconds := os.environ.get("HANGS"):
            from django_jobs.worker import health_process

            health_process.HANGS = float(seconds)
        if flag := os.environ.get("NO_ROOM"):
            _refuse_forks(Path(flag))


def _refuse_forks(flag: Path) -> None:
    """While the file is there, this process cannot fork: as where the limit of a user's processes is reached."""
    fork, pid = os.fork, os.getpid()

    def refuse() -> int:
        if flag.exists() and os.getpid() == pid:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    os.fork = refuse
