"""SAQ: one asyncio process per worker, with the default concurrency of 10; one queue per worker."""

from __future__ import annotations

import asyncio
import sys

from saq import Queue

from bench.subjects.base import URL, Subject, serve

queue = Queue.from_url(URL, name="q0")


async def noop(context: object, *, number: int) -> None:
    from bench.counter import counter

    counter.bump()


settings = {"queue": queue, "functions": [noop], "concurrency": 10}


def enqueue(n: int) -> None:
    async def send() -> None:
        sender = Queue.from_url(URL, name="q0")
        for i in range(n):
            await sender.enqueue("noop", number=i)
        await sender.disconnect()

    asyncio.run(send())


def workers(processes: int) -> list[list[str]]:
    return [[sys.executable, "-m", "saq", "bench.subjects.saq_.settings", "--workers", str(processes), "--quiet"]]


SUBJECT = Subject("SAQ", True, enqueue, workers, "asyncio, concurrency 10")

if __name__ == "__main__":
    serve(SUBJECT)
