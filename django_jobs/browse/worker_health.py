"""Whether workers do their work, from what they publish and what waits, for `jobs health` and probes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.core.values import QueueStats, State, WorkerInfo

#: ms: a free worker that leaves a job waiting for so long does not claim.
STALLED = 60_000


def problems_of(
    worker: WorkerInfo, queues: Iterable[QueueStats], now: int, foreign: Collection[str] = (), stalled: int = STALLED
) -> list[str]:
    """Return what is wrong with this worker, one sentence each.

    `now`: ms, the store's clock.  `foreign`: queues that only workers over HTTP serve.  A long job is no problem, and
    neither is a paused queue."""
    info, lease = worker.info, get_settings().lease * 1000
    found = [str(each) for each in _list(info.get("problems"))]
    if now - worker.seen_at > lease:
        found.append(f"It has not reported for {(now - worker.seen_at) / 1000:.0f} s.")
    found += [
        f"It is free and claims nothing, though a job of {stats.queue} has waited for {stats.latency / 1000:.0f} s."
        for stats in _neglected(info, queues, now, stalled)
        if stats.queue not in foreign
    ]
    return found


def too_slow(queues: Iterable[QueueStats], most: float) -> list[str]:
    """Return the queues whose oldest job has waited longer than `most` seconds, one sentence each."""
    return [
        f"The oldest job of {stats.queue} has waited for {stats.latency / 1000:.0f} s."
        for stats in queues
        if stats.latency > most * 1000
    ]


def _neglected(info: Any, queues: Iterable[QueueStats], now: int, stalled: int) -> Iterator[QueueStats]:
    children = [each for each in _list(info.get("children")) if isinstance(each, dict)]
    started = info.get("started_at")
    if info.get("state") != "running" or not isinstance(started, int) or now - started < stalled:
        return
    if any(each.get("jobs") for each in children):
        return
    mine = set(_list(info.get("queues"))) - set(_list(info.get("closed_queues")))
    limits = get_settings().queues
    for stats in queues:
        most = limits[stats.queue].max_concurrency if stats.queue in limits else 0
        is_full = most and stats.counts.get(State.RUNNING, 0) >= most
        if stats.queue in mine and stats.latency >= stalled and not stats.paused and not is_full:
            yield stats


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
