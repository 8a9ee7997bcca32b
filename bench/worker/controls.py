"""What each kind of job costs: the same no-ops with limits and unique keys that are never reached, at most once, async,
and failing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import redis

from bench.counter import counter
from bench.measures import Numbers
from bench.running import wait_for, workers
from bench.subjects.ours import workers as our_workers

QUEUES = 5
#: BENCH_LIMIT: MAX_CONCURRENCY of every queue.
FAR_AWAY = "100000"


def limits(env: dict[str, str], number: int = 30_000, processes: int = 2) -> dict[str, float]:
    """Return the jobs per second of one drain of each kind, in one run.  "no limit" is measured before and after the
    others: a machine that becomes slower meanwhile must not look like the cost of limits."""
    from bench.jobs import coroutine, dies, fails, limited, limited_by_key, noop, once, single, timed

    queue_limit = env | {"BENCH_LIMIT": FAR_AWAY}
    before = _drain(noop, number, processes, env)
    with_limits = {
        "limit of the queue": _drain(noop, number, processes, queue_limit),
        "limit of the type": _drain(limited, number, processes, env),
        "limit per key, 100 keys": _drain(limited_by_key, number, processes, env, keys=100),
        "unique": _drain(single, number, processes, env),
        "time limit": _drain(timed, number, processes, env),
        "at most once": _drain(once, number // 3, processes, env),
        "async": _drain(coroutine, number, processes, env),
        "failed, to be retried": _drain(fails, number, processes, env),
        "failed, dead": _drain(dies, number, processes, env),
    }
    return {"no limit": (before + _drain(noop, number, processes, env)) / 2, **with_limits}


def _drain(task: Any, number: int, processes: int, env: dict[str, str], *, keys: int = 0) -> float:
    redis.Redis.from_url(env["BENCH_STORE"]).flushall()
    counter.reset()
    for part in range(QUEUES):
        calls = ((i, i % keys) if keys else (i,) for i in range(part, number, QUEUES))
        task.using(queue=f"q{part}").enqueue_many(calls)
    with workers(our_workers(processes), env):
        return wait_for(number)


def rows(runs: Sequence[dict[str, float]]) -> list[tuple[str, Numbers]]:
    """Return one row per kind: the median rate, and its share of the median rate without any."""
    rates = {kind: statistics.median(run[kind] for run in runs) for kind in runs[0]}
    return [(kind, {"jobs/s": rate, "share": rate / rates["no limit"]}) for kind, rate in rates.items()]
