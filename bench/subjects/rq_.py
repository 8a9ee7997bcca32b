"""RQ: its worker pool, which forks for every job."""

from __future__ import annotations

import shutil
import sys

from bench.subjects.base import QUEUES, URL, Subject, serve


def noop(number: int) -> None:
    from bench.counter import counter

    counter.bump()


def _queues() -> list:
    import redis
    from rq import Queue

    connection = redis.Redis.from_url(URL)
    return [Queue(name, connection=connection) for name in QUEUES]


def enqueue(n: int) -> None:
    queues = _queues()
    for i in range(n):
        queues[i % 5].enqueue("bench.subjects.rq_.noop", i)


def bulk(n: int) -> None:
    from rq import Queue

    for part, queue in enumerate(_queues()):
        numbers = range(part, n, 5)
        for start in range(0, len(numbers), 1000):
            some = numbers[start : start + 1000]
            queue.enqueue_many([Queue.prepare_data("bench.subjects.rq_.noop", (i,)) for i in some])


def workers(processes: int) -> list[list[str]]:
    rq = shutil.which("rq", path=f"{sys.prefix}/bin") or "rq"
    return [[rq, "worker-pool", "--url", URL, "-n", str(processes), "-l", "ERROR", *QUEUES]]


SUBJECT = Subject("RQ", True, enqueue, workers, "worker-pool (fork per job)", bulk)

if __name__ == "__main__":
    serve(SUBJECT)
