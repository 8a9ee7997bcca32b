"""Dramatiq: its command line, with the default of 8 threads per process."""

from __future__ import annotations

import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.subjects.base import QUEUES, URL, Subject, serve

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


def _bump(number: int) -> None:
    from bench.counter import counter

    counter.bump()


ACTORS = [dramatiq.actor(_bump, actor_name=f"noop_{queue}", queue_name=queue) for queue in QUEUES]


def enqueue(n: int) -> None:
    for i in range(n):
        ACTORS[i % 5].send(i)


def workers(processes: int) -> list[list[str]]:
    return [[sys.executable, "-m", "dramatiq", "bench.subjects.dramatiq_", "-p", str(processes), "-t", "8"]]


SUBJECT = Subject("Dramatiq", True, enqueue, workers, "8 threads a process")

if __name__ == "__main__":
    serve(SUBJECT)
