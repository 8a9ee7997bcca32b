"""Receivers that write into the ledger what they are told, and who is told it: the event has the process id."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.dispatch import Signal

from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.signals import (
    child_started,
    child_stopping,
    job_cancelled,
    job_dead,
    job_failed,
    job_retried,
    job_started,
)
from tests.survival.project.jobs import ledger

SIGNALS = {
    "job_failed": job_failed,
    "job_retried": job_retried,
    "job_dead": job_dead,
    "job_cancelled": job_cancelled,
}


def listen(what: str, flag: str = "") -> None:
    """Each notes what it is told.  "wait" then waits for the file `flag`; "follow" does, too, and enqueues after-ID;
    "start" waits for it at the start of each job."""
    if what == "start":
        job_started.connect(lambda **_: _wait(flag), weak=False)
        return
    for name, signal in SIGNALS.items():
        _connect(name, signal, what, flag)


def _wait(flag: str) -> None:
    while not Path(flag).exists():
        time.sleep(0.01)


def _connect(name: str, signal: Signal, what: str, flag: str) -> None:
    def receive(sender: Any, job_id: str, attempt: int, error: Any, **_: Any) -> None:
        ledger.write(name, job_id, attempt, f"{type(error).__name__}/{sender and sender.name}")
        if flag:
            _wait(flag)
            ledger.write("heard", job_id)
        if what == "follow" and name == "job_dead":
            enqueue_by_name("work", [], job_id=f"after-{job_id}")

    signal.connect(receive, weak=False)


def note_children(path: str) -> None:
    """Note when a child starts, when it stops, and that handlers of `atexit` ran after that, in the child itself.

    Such a handler sees a temporary folder that the parent made: the parent removes it."""
    parent = os.getpid()
    folder = TemporaryDirectory()

    def note(text: str) -> None:
        with open(path, "a") as file:
            file.write(f"{text} {os.getpid() != parent}\n")

    child_started.connect(lambda **_: note("started"), weak=False)
    child_stopping.connect(lambda **_: note("stopping"), weak=False)
    atexit.register(lambda: note(f"atexit {Path(folder.name).exists()}"))
