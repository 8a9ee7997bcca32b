"""Receivers that write into the ledger what they are told, and who is told it: the event has the process id."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.dispatch import Signal

from django_jobs.enqueue.submit import enqueue_by_name
from django_jobs.signals import job_cancelled, job_dead, job_failed, job_retried, job_started
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
