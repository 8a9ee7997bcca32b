"""Tasks that end in the ways that Celery knows."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

from django_jobs.compat.celery import SoftTimeLimitExceeded, shared_task
from django_jobs.compat.celery.signals import worker_process_init, worker_process_shutdown

libc = ctypes.CDLL(None)


@worker_process_init.connect
def began(**kwargs: Any) -> None:
    note("began")


@worker_process_shutdown.connect
def ends(**kwargs: Any) -> None:
    note("ends")


def note(text: str) -> None:
    if path := os.environ.get("CELERY_NOTES"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


@shared_task(name="compat.sleeps", soft_time_limit=0.3)
def sleeps(how: str) -> str:
    """Block for long, in Python or in C, and say what came."""
    try:
        if how == "loop":
            while True:
                pass
        if how == "lock":
            threading.Event().wait(30)
        if how == "read":
            os.read(os.pipe()[0], 1)
        time.sleep(30)
    except SoftTimeLimitExceeded:
        return f"{how} was told"
    return "nothing came"


@shared_task(name="compat.strict", time_limit=0.5)
def strict() -> None:
    time.sleep(30)


@shared_task(name="compat.lost", acks_late=False)
def lost(path: str) -> None:
    note("lost ran")
    os.kill(os.getpid(), 9)


@shared_task(name="compat.lost_late", acks_late=True)
def lost_late(path: str) -> None:
    if Path(path).exists():
        return
    Path(path).touch()
    os.kill(os.getpid(), 9)


@shared_task(name="compat.told")
def told(task_id: str) -> None:
    note(f"errback {task_id}")
