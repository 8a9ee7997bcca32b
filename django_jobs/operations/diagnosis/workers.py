"""Whether workers do their work, from what they publish and what waits: for findings, `jobs health` and probes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from django.utils.translation import override

from django_jobs.conf import get_settings
from django_jobs.core.values import QueueStats, State, WorkerInfo
from django_jobs.operations.diagnosis.facts import Facts
from django_jobs.operations.diagnosis.finding import Finding, Severity, cut
from django_jobs.operations.diagnosis.looks import STILL
from django_jobs.operations.diagnosis.rules import CLOCK
from django_jobs.serialization.checked import is_moment, list_of

#: ms: a free worker that leaves a job waiting for so long does not claim.
STALLED = 60_000


def problems_of(
    worker: WorkerInfo, queues: Iterable[QueueStats], now: int, foreign: Collection[str] = (), stalled: int = STALLED
) -> list[str]:
    """Return what is wrong with this worker, one English sentence each, without its name.

    `now`: ms, the store's clock.  `foreign`: queues that only workers over HTTP serve.  A long job is no problem, and
    neither is a paused queue."""
    served = [stats for stats in queues if stats.queue not in foreign]
    with override("en"):
        found = list(_of_worker(worker, served, now, stalled))
        return [cut(str(each.more.get("problem", ""))) or replace(each, detail="It").says for each in found]


def too_slow(queues: Iterable[QueueStats], most: float) -> list[str]:
    """Return the queues whose oldest job has waited longer than `most` seconds, one sentence each."""
    return [
        f"The oldest job of {stats.queue} has waited for {stats.latency / 1000:.0f} s."
        for stats in queues
        if stats.latency > most * 1000
    ]


def workers(facts: Facts) -> Iterator[Finding]:
    """Workers and child processes that are silent, that are free and claim nothing, or whose clock is wrong."""
    served = [stats for stats in facts.counted.queues.values() if stats.queue not in facts.pull_queues]
    for worker in facts.workers:
        yield from _of_worker(worker, served, facts.now, STILL)
        if is_moment(at := worker.info.get("at")) and abs(off := (at - worker.seen_at) / 1000) > CLOCK:
            severity = Severity.ERROR if abs(off) > facts.lease / 2000 else Severity.WARNING
            yield Finding("clock", severity, number=int(abs(off) * 1000), detail=worker.name)
    for worker in facts.silent:
        if not any(_replaces(other, worker) for other in facts.workers):
            yield _silent(worker, facts.now)


def _of_worker(worker: WorkerInfo, queues: Iterable[QueueStats], now: int, stalled: int) -> Iterator[Finding]:
    for problem in list_of(worker.info.get("problems")):
        yield Finding("child_silent", Severity.ERROR, detail=worker.name, more={"problem": str(problem)})
    if now - worker.seen_at > get_settings().lease * 1000:
        yield _silent(worker, now)
    for stats in _neglected(worker.info, queues, now, stalled):
        since, waited = now - stats.latency, stats.latency
        yield Finding("neglected", Severity.ERROR, since, stats.queue, waited, worker.name)


def _silent(worker: WorkerInfo, now: int) -> Finding:
    return Finding("silent", Severity.ERROR, worker.seen_at, number=now - worker.seen_at, detail=worker.name)


def _replaces(worker: WorkerInfo, silent: WorkerInfo) -> bool:
    """A worker that started on the same machine after the other had fallen silent, as a service manager starts it."""
    started = worker.info.get("started_at")
    return worker.info.get("host") == silent.info.get("host") and is_moment(started) and started >= silent.seen_at


def _neglected(info: Any, queues: Iterable[QueueStats], now: int, stalled: int) -> Iterator[QueueStats]:
    started = info.get("started_at")
    if info.get("state") != "running" or not isinstance(started, int) or now - started < stalled:
        return
    if any(each.get("jobs") for each in list_of(info.get("children"), dict)):
        return
    mine = set(list_of(info.get("queues"))) - set(list_of(info.get("closed_queues")))
    limits = get_settings().queues
    for stats in queues:
        most = limits[stats.queue].max_concurrency if stats.queue in limits else 0
        is_full = most and stats.counts.get(State.RUNNING, 0) >= most
        if stats.queue in mine and stats.latency >= stalled and not stats.paused and not is_full:
            yield stats
