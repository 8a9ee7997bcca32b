"""What a group costs, compared with its jobs alone: the processor time of this process and of the Redis server.

`python -m bench.groups` prints it as JSON for the store in BENCH_STORE, in a process of its own and best on a server of
its own: what the server has done before is measured along.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import repeat
from statistics import median
from typing import Any

import django
import redis

from bench.measures import Numbers
from django_jobs import group
from django_jobs.execution.executor import Executor
from django_jobs.stores import get_store
from django_jobs.stores.redis import Store
from django_jobs.worker.child.settler import Settler


def group_against_jobs(
    task: Any, args: tuple[Any, ...], queue: str, store: Store, server: redis.Redis | None, number: int = 10_000
) -> Numbers:
    """Enqueue and run `number` jobs of `task` alone, then as a group, the last of them after the others, several times.

    Returns the median seconds of processor time of each of the four parts, and the two ratios.  Processor time, because
    it hardly depends on what else the machine does.  The ratios are of medians, too, in units of a calculation that is
    made before and after each part: the speed of a rented processor may change by half from one second to the next."""
    spent: defaultdict[str, list[float]] = defaultdict(list)
    units: defaultdict[str, list[float]] = defaultdict(list)

    def measure(what: str, call: Callable[[], object]) -> None:
        gc.collect()  # what the parts before have left is not measured with this one
        before, began = _unit(), _seconds(server)
        call()
        spent[what].append(_seconds(server) - began)
        units[what].append(spent[what][-1] / (before + _unit()))

    def enqueue_group() -> None:
        group(*(task.s(*args) for _ in range(number - 1))).then(task.s(*args)).enqueue()

    for _ in range(3 if server is None else 9):  # the embedded store takes four times as long
        measure("jobs, enqueue s", lambda: task.enqueue_many(repeat(args, number)))
        measure("jobs, finish s", lambda: run_all(store, queue))
        measure("group, enqueue s", enqueue_group)
        measure("group, finish s", lambda: run_all(store, queue))
    numbers = {what: median(seconds) for what, seconds in spent.items()}
    for part in ("enqueue", "finish"):
        numbers[f"{part} ×"] = median(units[f"group, {part} s"]) / median(units[f"jobs, {part} s"])
    return numbers


def run_all(store: Store, queue: str) -> None:
    """Run what waits, in batches of a thousand, as a worker's thread does."""
    executor, settler = Executor(close_connections=False), Settler(store)
    while claims := store.claim(queue, "bench", 1000, lease=30_000).claims:
        settler.settle_now([executor.attempt(claim, store) for claim in claims])


def _seconds(server: redis.Redis | None) -> float:
    """Return the processor time so far of this process, and of the server."""
    used = server.info("cpu") if server is not None else {}
    return time.process_time() + used.get("used_cpu_user", 0.0) + used.get("used_cpu_sys", 0.0)


def _unit() -> float:
    """Return the seconds that this processor takes for a calculation now."""
    began = time.process_time()
    for _ in range(20):
        sum(range(20_000))
    return time.process_time() - began


def main() -> None:
    """Measure the store in BENCH_STORE."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.django_settings")
    django.setup()
    from bench.jobs import noop

    url = os.environ["BENCH_STORE"]
    server = None if url.startswith("embedded:") else redis.Redis.from_url(url)
    print(json.dumps(group_against_jobs(noop, (0,), "q0", get_store(), server)))


if __name__ == "__main__":
    main()
