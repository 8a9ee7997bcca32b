"""Huey: process workers; a job is popped before it runs, so a killed worker loses it.  It has one queue."""

from __future__ import annotations

import shutil
import sys

from huey import RedisHuey

from bench.subjects.base import URL, Subject, serve

huey = RedisHuey("bench", url=URL, results=False)


@huey.task()
def noop(number: int) -> None:
    from bench.counter import counter

    counter.bump()


def enqueue(n: int) -> None:
    for i in range(n):
        noop(i)


def workers(processes: int) -> list[list[str]]:
    consumer = shutil.which("huey_consumer", path=f"{sys.prefix}/bin") or "huey_consumer.py"
    return [[consumer, "bench.subjects.huey_.huey", "-w", str(processes), "-k", "process", "-n", "-q"]]


SUBJECT = Subject("Huey", False, enqueue, workers, "process workers, no results")

if __name__ == "__main__":
    # Huey names a task after its module, and the consumer does not know a module `__main__`.
    from bench.subjects import huey_

    serve(huey_.SUBJECT)
