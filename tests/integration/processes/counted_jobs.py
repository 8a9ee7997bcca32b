"""Counts what a thread of a worker does for each job: `python -m tests.integration.processes.counted_jobs ADDRESS`.

A process of its own, because what else a process has loaded and connected (receivers, log handlers, databases) costs
something for each job, too.  Prints JSON: kind of job → calls of functions, and steps of the interpreter.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import repeat
from math import inf
from types import FrameType
from typing import Any

import django
from django.conf import settings

settings.configure(INSTALLED_APPS=["django_jobs"], DJANGO_JOBS={"STORE": sys.argv[1]}, USE_TZ=True)
django.setup()

# The package is imported after the settings, as in any script that uses Django by itself.
from django_jobs import job  # noqa: E402
from django_jobs.conf import QueueSettings  # noqa: E402
from django_jobs.core.values import Lane  # noqa: E402
from django_jobs.execution import executor  # noqa: E402
from django_jobs.stores import get_store  # noqa: E402
from django_jobs.worker.child.process import Child  # noqa: E402
from django_jobs.worker.config import WorkerConfig  # noqa: E402
from django_jobs.worker.shared_memory import SharedMemory  # noqa: E402


@job(name="plain")
def plain(number: int) -> None:
    """Costs nothing itself."""


@job(name="unique", unique="running")
def unique(number: int) -> None:
    """At most one for each number."""


@job(name="timeout", timeout=60)
def with_time_limit(number: int) -> None:
    """Has a time limit."""


@job(name="fails", backoff=[3600.0])
def fails(number: int) -> None:
    raise ValueError("no")


@job(name="at_most_once", delivery="at_most_once")
def at_most_once(number: int) -> None:
    """Runs alone, one after the other."""


class Sizes:
    """Claims so many jobs at a time."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self, queue: str) -> int:
        return self._size

    def observe(self, queue: str, seconds: float, jobs: int) -> None:
        """Do not learn."""


class Silent:
    """The pipe to a parent that is not there."""

    def send(self, message: object) -> None:
        pass


def calls_of(function: Callable[[], object]) -> int:
    """Return how many functions it calls, in Python and in C."""
    called = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    sys.setprofile(count)
    function()
    sys.setprofile(None)
    return called


def steps_of(function: Callable[[], object]) -> int:
    """Return how many steps Python's interpreter makes in it."""
    steps = 0

    def count(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return count

    sys.settrace(count)
    function()
    sys.settrace(None)
    return steps


def costs(task: Any, lane: Lane) -> tuple[float, float]:
    """Return what one job more in a batch costs: calls and steps."""
    store = get_store()
    channel: Any = Silent()
    config = WorkerConfig((QueueSettings("default"),), threads=1)
    child = Child(store, config, "w", lane, SharedMemory(["default"], 1), channel)
    child.fetcher._looked_round = inf  # do not look at all queues: that belongs to no job
    (runner,) = child.runners

    def cost(counted: Callable[[Callable[[], object]], int], jobs: int) -> int:
        child.sizer = Sizes(jobs)  # type: ignore[assignment]
        task.enqueue_many([(number,) for number in range(jobs)])
        child.fetcher.picker.suspect()
        found = 0
        while store.backlog(["default"], lane=lane)["default"]:
            found += counted(runner._turn)
        return found + counted(runner._end_batch)

    cost(calls_of, 10)  # what is prepared once is prepared now
    calls, steps = ((cost(counted, 150) - cost(counted, 50)) / 100 for counted in (calls_of, steps_of))
    return calls, steps


if __name__ == "__main__":
    # All jobs take the same time: different times are counted in different buckets.
    executor.perf_counter = repeat(0.0).__next__
    alone = with_time_limit, at_most_once
    kinds: list[Any] = [plain, unique, fails, *alone]
    print(json.dumps({task.name: costs(task, Lane.ALONE if task in alone else Lane.SHARED) for task in kinds}))
