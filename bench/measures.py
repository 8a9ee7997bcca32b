"""The measures: each returns numbers of one run; __main__ repeats them and takes medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import redis

from bench.counter import counter
from bench.running import heaviest_child, send, wait_for, workers
from bench.subjects.base import Subject

Numbers = dict[str, float]


def rate(call: Callable[[int], object], n: int) -> float:
    """Return calls per second, one after the other."""
    started = time.perf_counter()
    for i in range(n):
        call(i)
    return n / (time.perf_counter() - started)


def bare(url: str) -> Numbers:
    """Measure redis-py itself, as the reference of the run."""
    client = redis.Redis.from_url(url)
    payload = b"x" * 100

    numbers = {
        "SET loop": rate(lambda i: client.set(f"k{i}", payload), 5000),
        "PING loop": rate(lambda i: client.ping(), 5000),
    }
    client.flushall()
    return numbers


def busy_seconds(client: redis.Redis) -> float:
    """Return the processor time that the server has taken so far."""
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def drain(module: str, subject: Subject, number: int, processes: int, env: dict[str, str]) -> Numbers:
    """Enqueue, then start the workers, and measure the rate between the first and the last job."""
    redis.Redis.from_url(env["BENCH_STORE"]).flushall()
    counter.reset()
    numbers = {"enqueue": send(module, "enqueue", min(number, 10_000), env)}
    waiting = min(number, 10_000) + 200
    if number > 10_000:
        numbers["bulk"] = send(module, "bulk" if subject.bulk else "enqueue", number - 10_000, env)
        waiting += number - 10_000 + 200
    client = redis.Redis.from_url(env["BENCH_STORE"])
    busy = busy_seconds(client)
    with workers(subject.workers(processes), env) as running:
        numbers["drain"] = wait_for(waiting)
        numbers["Redis µs/job"] = (busy_seconds(client) - busy) / waiting * 1e6
        numbers["child MB"] = heaviest_child(running[0].pid)
    return numbers


def spread(values: list[float]) -> Numbers:
    """Return statistics, in milliseconds, of a list of seconds."""
    ordered = sorted(values)
    return {
        "p50 ms": statistics.median(ordered) * 1000,
        "p99 ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
    }
