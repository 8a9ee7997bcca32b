"""Ways to enqueue in one process, and the same number of commands of redis-py and of a bare socket beside them."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import hiredis
import redis
import redis.asyncio
from asgiref.sync import sync_to_async

from bench.measures import Numbers, rate
from bench.table import median

PAYLOAD = b"x" * 100
THREADS = 8
#: Tasks that enqueue at the same time on one event loop.
TASKS = 50


def rates(env: dict[str, str], number: int = 4_000) -> Numbers:
    """Return calls per second of each way, in one run."""
    from bench.jobs import noop, once, single, timed

    url = env["BENCH_STORE"]
    client = redis.Redis.from_url(url)
    noop.enqueue(0)  # it connects, and makes the queue known
    ways: dict[str, Callable[[], float]] = {
        "SET": lambda: rate(lambda i: client.set(f"k{i}", PAYLOAD), number),
        "enqueue": lambda: rate(noop.enqueue, number),
        "enqueue, with a time limit": lambda: rate(timed.enqueue, number),
        "enqueue, at most once": lambda: rate(once.enqueue, number),
        "enqueue, unique": lambda: rate(single.enqueue, number),
        "what enqueue sends, by a bare socket": lambda: _bare(noop.enqueue, url, number, 0.0),
        "the same, 11 µs after each reply": lambda: _bare(noop.enqueue, url, number, 0.000_011),
        f"SET, {THREADS} threads": lambda: _in_threads(lambda i: client.set(f"k{i}", PAYLOAD), 2 * number),
        f"enqueue, {THREADS} threads": lambda: _in_threads(noop.enqueue, 2 * number),
        "async SET": lambda: asyncio.run(_async_set(url, number)),
        "nothing, in Django's thread for sync code": lambda: asyncio.run(
            _awaited(sync_to_async(lambda i: None), number)
        ),
        "aenqueue": lambda: asyncio.run(_awaited(noop.aenqueue, number)),
        f"aenqueue, {TASKS} at the same time": lambda: asyncio.run(_in_tasks(noop.aenqueue, 5 * number)),
        "enqueue_many, a list": lambda: _at_once(lambda calls: noop.enqueue_many(list(calls)), 10 * number),
        "enqueue_many, an iterator": lambda: _at_once(noop.enqueue_many, 10 * number),
    }
    found = {}
    for name, way in ways.items():
        client.flushall()
        gc.collect()
        gc.freeze()  # what the ways before have left is not looked at again
        found[name] = way()
    client.flushall()
    return found


def _at_once(call: Callable[[Any], object], number: int) -> float:
    started = time.perf_counter()
    call((i,) for i in range(number))
    return number / (time.perf_counter() - started)


def _in_threads(call: Callable[[int], object], number: int) -> float:
    each = number // THREADS

    def body(first: int) -> None:
        for i in range(first, first + each):
            call(i)

    threads = [threading.Thread(target=body, args=(n * each,)) for n in range(THREADS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS * each / (time.perf_counter() - started)


async def _awaited(call: Callable[[int], Awaitable[object]], number: int) -> float:
    await call(-1)
    started = time.perf_counter()
    for i in range(number):
        await call(i)
    return number / (time.perf_counter() - started)


async def _in_tasks(call: Callable[[int], Awaitable[object]], number: int) -> float:
    each = number // TASKS

    async def body(first: int) -> None:
        for i in range(first, first + each):
            await call(i)

    await call(-1)
    started = time.perf_counter()
    await asyncio.gather(*(body(n * each) for n in range(TASKS)))
    return TASKS * each / (time.perf_counter() - started)


async def _async_set(url: str, number: int) -> float:
    async with redis.asyncio.Redis.from_url(url) as client:
        return await _awaited(lambda i: client.set(f"k{i}", PAYLOAD), number)


def _bare(call: Callable[[int], object], url: str, number: int, pause: float) -> float:
    """Send the bytes of so many calls again, to an empty server, by a socket that looks for each reply until it is
    there: what the machine and the script take if the client does nothing, or computes for `pause` seconds."""
    from django_jobs.stores.redis.connection.thread_connection import ThreadConnection

    requests: list[bytes] = []
    write = ThreadConnection.write

    def noted(connection: ThreadConnection, data: bytes) -> None:
        requests.append(data)
        write(connection, data)

    with mock.patch.object(ThreadConnection, "write", noted):
        for i in range(number):
            call(i)
    client = redis.Redis.from_url(url)
    client.flushall()
    where = client.connection_pool.connection_kwargs
    reader, buffer = hiredis.Reader(), bytearray(65_536)
    with socket.create_connection((where["host"], where["port"])) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        started = time.perf_counter()
        for request in requests:
            until = time.perf_counter() + pause
            while pause and time.perf_counter() < until:
                pass
            sock.sendall(request)
            reply: Any = False
            while reply is False:
                try:
                    reader.feed(buffer, 0, sock.recv_into(buffer))
                except BlockingIOError:
                    continue
                reply = reader.gets()
            if reply != b"added":
                raise SystemExit(f"a bare socket was answered {reply!r}, not b'added'")
        return number / (time.perf_counter() - started)


def rows(runs: list[Numbers]) -> list[tuple[str, Numbers]]:
    """Return one row per way: the median rate, the microseconds of one call, and its share of the median of SET."""
    medians = median(runs)
    return [(name, {"per s": n, "µs": 1e6 / n, "share of SET": n / medians["SET"]}) for name, n in medians.items()]
