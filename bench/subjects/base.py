"""What the benchmark needs of each system: how to enqueue n no-ops, and how to start its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

URL = os.environ.get("BENCH_STORE", "redis://127.0.0.1:6379/0")
QUEUES = [f"q{i}" for i in range(5)]


@dataclass(frozen=True)
class Subject:
    """One system.  `enqueue(n)` sends n no-ops one by one to five queues; `bulk(n)` uses its batch call."""

    name: str
    #: whether a job survives the death of its worker, with the settings used here.
    keeps_jobs: bool
    enqueue: Callable[[int], None]
    #: processes → command lines to start
    workers: Callable[[int], list[list[str]]]
    settings: str
    bulk: Callable[[int], None] | None = None


def serve(subject: Subject) -> None:
    """`python -m bench.subjects.<name> enqueue|bulk N`: run in a process of its own, print the seconds it took."""
    import time

    verb, number = sys.argv[1], int(sys.argv[2])
    send = subject.enqueue if verb == "enqueue" else subject.bulk
    assert send is not None, f"{subject.name} has no {verb}"
    send(200)  # connections and scripts are there before the clock starts
    started = time.perf_counter()
    send(number)
    print(time.perf_counter() - started)
