"""The findings that follow from what runs and what fails.  Pure: no clock, no store."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from django_jobs.browse.health import takers, unserved
from django_jobs.core.values import State, WorkerInfo
from django_jobs.operations.diagnosis.facts import Facts
from django_jobs.operations.diagnosis.failing import FEW, HALF, RETRIES, TypeNumbers, is_above
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.operations.diagnosis.looks import STILL, LongRun, reported

#: Waiting retries are a finding if they are also more than this part of the jobs that succeeded in the last hour.
RETRY_PART = 0.01
#: ms: jobs that have been retried for so long without a success are stuck.
STUCK = 10 * 60_000


def standstill(facts: Facts) -> Iterator[Finding]:
    """Work that waits behind jobs that hang: behind a limit, or in a queue in which nothing has started."""
    long = {(each.queue, each.id): each for each in facts.work.long} if facts.work else {}
    hanging = {key: each for key, each in long.items() if each.hangs(facts.now)}
    for each in hanging.values():
        if each.behind and all((each.queue, id) in hanging for id in each.holders):
            more = {"ran_ms": facts.now - each.since}
            yield Finding("hung", Severity.ERROR, each.since, each.queue, each.behind, each.name, "", each.id, more)
        if each.flow is not None:
            cause = "hung_batch" if each.flow.kind == "batch" else "hung_workflow"
            number, name = each.flow.counts["waiting"], each.flow.name
            about: dict[str, object] = {"ran_ms": facts.now - each.since, "type": each.name}
            yield Finding(cause, Severity.ERROR, each.since, each.queue, number, name, "", each.id, about)
    for queue, (at, id) in (facts.work.latest if facts.work else {}).items():
        stats, is_served = facts.counted.queues[queue], not unserved(queue, facts.workers)[0]
        # Where nobody takes jobs, nothing starts however short the jobs are that run.
        if stats.latency >= STILL and (queue, id) in hanging and (is_served or queue in facts.pull_queues):
            yield hung_queue(facts, queue, at, [each for each in hanging.values() if each.queue == queue])
    for queue in stopped_by_others(facts):
        yield hung_queue(facts, queue, facts.now - facts.counted.queues[queue].latency, list(hanging.values()))


def hung_queue(facts: Facts, queue: str, since: int, hanging: list[LongRun]) -> Finding:
    """Return the finding of a queue in which nothing starts, with the first of the jobs in its way."""
    first = min(hanging, key=lambda each: each.since)
    waiting = facts.counted.queues[queue].counts.get(State.QUEUED, 0)
    more = {"jobs": waiting, "in": first.queue}
    return Finding("hung_queue", Severity.ERROR, since, queue, facts.now - since, first.name, "", first.id, more)


def stopped_by_others(facts: Facts) -> list[str]:
    """Return the queues in which nothing runs, because every worker that serves them is full of jobs that hang."""
    long = {(each.queue, each.id) for each in facts.work.long if each.hangs(facts.now)} if facts.work else set()
    found = []
    for queue, stats in facts.counted.queues.items():
        if stats.latency < STILL or stats.paused or stats.counts.get(State.RUNNING):
            continue
        serving = takers(queue, facts.workers)
        if serving and all(is_full(worker, long) for worker in serving):
            found.append(queue)
    return found


def is_full(worker: WorkerInfo, jobs: Collection[tuple[str, str]]) -> bool:
    """Return whether the worker has no free thread, and runs only these jobs."""
    threads = [worker.info.get(key) for key in ("processes", "threads")]
    own = {(each.queue, each.id) for each in reported([worker])}
    return len(own) >= prod(n if isinstance(n, int) else 1 for n in threads) and own <= set(jobs)


def overrun(facts: Facts) -> Iterator[Finding]:
    """Jobs that run far beyond what is usual for their type."""
    for each in facts.work.long if facts.work else ():
        ran = facts.now - each.since
        if each.overruns(facts.now) and each.flow is None:  # else it is `hung_workflow` or `hung_batch`
            more = {"usual_ms": each.usual}
            yield Finding("overrun", Severity.WARNING, each.since, each.queue, ran, each.name, "", each.id, more)


def failing(facts: Facts) -> Iterator[Finding]:
    """Types with more failed attempts than usual."""
    for each in facts.types or ():
        if each.failed >= FEW and is_unusual(each):
            usual = None if each.usual is None else round(each.usual * each.attempts)
            more = {"attempts": each.attempts, "usual": usual, "state": each.state}
            yield Finding(
                "failing", Severity.ERROR, each.since, each.queue, each.failed, each.name, each.error, more=more
            )


def is_unusual(numbers: TypeNumbers) -> bool:
    """Return whether so many attempts fail that it is not as usual."""
    part = numbers.failed / numbers.attempts
    return part >= HALF if numbers.usual is None else is_above(part, numbers.usual)


def retries(facts: Facts) -> Iterator[Finding]:
    """Retries that pile up, or that do not end."""
    waiting = facts.counted.counts.get(State.RETRY, 0)
    done = sum(facts.hour.values.get("succeeded", [])) if facts.hour is not None else 0
    if waiting >= RETRIES and waiting > RETRY_PART * done:
        since = min((each.retrying_since for each in facts.types or () if each.retrying_since), default=0)
        yield Finding("retries", Severity.WARNING, since, number=waiting)
        return
    for each in facts.types or ():
        if each.retrying and not each.succeeded and facts.now - each.retrying_since >= STUCK:
            since, error = each.retrying_since, each.error
            yield Finding("retries_type", Severity.WARNING, since, each.queue, each.retrying, each.name, error)


RULES = (standstill, overrun, failing, retries)
