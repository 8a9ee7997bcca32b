"""Celery: prefork, acks_late and reject_on_worker_lost, which its documentation recommends against lost jobs."""

from __future__ import annotations

import sys

from celery import Celery

from bench.subjects.base import QUEUES, URL, Subject, serve

app = Celery("bench", broker=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(number: int) -> None:
    from bench.counter import counter

    counter.bump()


def enqueue(n: int) -> None:
    for i in range(n):
        noop.apply_async((i,), queue=QUEUES[i % 5])


def workers(processes: int) -> list[list[str]]:
    command = [sys.executable, "-m", "celery", "-A", "bench.subjects.celery_", "worker", "-c", str(processes)]
    return [[*command, "-Q", ",".join(QUEUES), "-l", "ERROR", "--without-gossip", "--without-mingle"]]


SUBJECT = Subject("Celery", True, enqueue, workers, "prefork, acks_late, reject_on_worker_lost")

if __name__ == "__main__":
    serve(SUBJECT)
