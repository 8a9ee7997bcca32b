"""What a worker does for each job, counted: calls of functions, and steps of Python's interpreter.

Times differ between machines and hours.  These numbers do not, so that no change makes each job a little slower
unnoticed.  Counted is what one job more in a batch costs, so without what is done once for each batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from math import inf
from types import FrameType
from typing import Any

import pytest

from django_jobs import job
from django_jobs.conf import QueueSettings
from django_jobs.core.values import Lane
from django_jobs.events import receivers
from django_jobs.execution import executor
from django_jobs.stores import use_store
from django_jobs.stores.redis import RedisStore
from django_jobs.worker.child.process import Child
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.shared_memory import SharedMemory

pytestmark = pytest.mark.redis


@job(name="tests.costs.nothing")
def nothing(number: int) -> None:
    """Costs nothing itself."""


@job(name="tests.costs.single", unique="running")
def single(number: int) -> None:
    """At most one for each number."""


@job(name="tests.costs.fails", backoff=[3600.0])
def fails(number: int) -> None:
    raise ValueError("no")


@job(name="tests.costs.once", delivery="at_most_once")
def once(number: int) -> None:
    """Runs alone, one after the other."""


@job(name="tests.costs.limited", timeout=60)
def limited(number: int) -> None:
    """Has a time limit."""


class Sizes:
    """Claims so many jobs at a time."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self, queue: str) -> int:
        return self._size

    def observe(self, queue: str, seconds: float, jobs: int) -> None:
        """Do not learn."""


def calls_of(function: Callable[[], object]) -> int:
    """Return how many functions it calls, in Python and in C."""
    called = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
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

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.accepts("G02")
@pytest.mark.parametrize(
    ("task", "lane", "calls", "steps"),
    [
        (nothing, Lane.SHARED, 66, 1070),
        (single, Lane.SHARED, 75, 1175),
        (limited, Lane.ALONE, 82, 1330),
        (fails, Lane.SHARED, 215, 2730),
        (once, Lane.ALONE, 365, 4900),  # one round trip for each
    ],
)
def test_a_job_more_in_a_batch_costs_no_more_than_this(
    redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch, task: Any, lane: Lane, calls: int, steps: int
) -> None:
    monkeypatch.setattr(receivers, "use", lambda telling: None)
    # All jobs take the same time: different times are counted in different buckets.
    monkeypatch.setattr(executor, "perf_counter", repeat(0.0).__next__)
    config = WorkerConfig((QueueSettings("default"),), threads=1)
    shared = SharedMemory(["default"], 1)
    channel: Any = type("Channel", (), {"send": lambda self, message: None})()
    child = Child(redis_store, config, "w", lane, shared, channel)
    (runner,) = child.runners
    child.fetcher._looked_round = inf  # do not look at all queues: that belongs to no job

    def cost(counted: Callable[[Callable[[], object]], int], jobs: int) -> int:
        child.sizer = Sizes(jobs)  # type: ignore[assignment]
        task.enqueue_many([(number,) for number in range(jobs)])
        child.fetcher.picker.suspect()
        found = 0
        while redis_store.backlog(["default"], lane=lane)["default"]:
            found += counted(runner._turn)
        return found + counted(runner._end_batch)

    use_store(redis_store)
    cost(calls_of, 10)  # what is prepared once is prepared now
    for counted, most in ((calls_of, calls), (steps_of, steps)):
        few, many = cost(counted, 50), cost(counted, 150)
        assert (many - few) / 100 <= most, counted.__name__
