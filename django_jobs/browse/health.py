"""What needs a person's attention: the short list that an operator reads first."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_jobs.browse.counts import LIVE_QUEUES, JobCounts
from django_jobs.core.values import State, WorkerInfo
from django_jobs.stores import get_store
from django_jobs.stores.contract.browsing import ParkedName

#: A queue whose oldest waiting job has waited this long (ms) is listed.
SLOW = 5 * 60_000
#: Maximum lines of one kind: the list must stay short enough to be read.
LINES = 5


class HealthIssue(NamedTuple):
    """One line of the list.  `kind` selects the sentence; the page words it."""

    #: "no_workers" | "narrow" | "latency" | "paused" | "type_paused" | "dead" | "unreported" | "trimmed" | "unknown"
    kind: str
    queue: str = ""
    number: int = 0
    text: str = ""


def unknown_names(counted: JobCounts, workers: list[WorkerInfo]) -> list[ParkedName]:
    """Return the names that jobs wait for and no live worker knows.  Asks only queues that have blocked jobs."""
    found = []
    for queue in counted.holding(State.BLOCKED)[:LIVE_QUEUES]:
        knowing = {each.info.get("knows") for each in workers if queue in _queues_of(each)}
        found += [parked for parked in get_store().parked(queue) if knowing <= parked.unknown_to]
    return found


def _queues_of(worker: WorkerInfo) -> list[Any]:
    queues = worker.info.get("queues")
    return queues if isinstance(queues, list) else []


def health_issues(counted: JobCounts, workers: list[WorkerInfo]) -> list[HealthIssue]:
    """Return everything that needs attention, worst first."""
    found: list[HealthIssue] = []
    waiting = counted.counts[State.QUEUED]
    if not workers and waiting:
        found.append(HealthIssue("no_workers", number=waiting))
    closed = [(each.info.get("closed"), each.name) for each in workers]
    found += [HealthIssue("narrow", "", n, name) for n, name in closed if isinstance(n, int) and n > 0][:LINES]
    stats = list(counted.queues.values())
    unknown = unknown_names(counted, workers)
    found += [HealthIssue("unknown", each.queue, each.jobs, each.name) for each in unknown[:LINES]]
    slow = sorted((s for s in stats if s.latency >= SLOW and not s.paused), key=lambda s: -s.latency)
    found += [HealthIssue("latency", s.queue, s.latency) for s in slow[:LINES]]
    dead = sorted((s for s in stats if s.counts.get(State.DEAD)), key=lambda s: -s.counts[State.DEAD])
    found += [HealthIssue("dead", s.queue, s.counts[State.DEAD]) for s in dead[:LINES]]
    paused = [s for s in stats if s.paused]
    found += [HealthIssue("paused", s.queue, s.paused.until, s.paused.reason) for s in paused[:LINES] if s.paused]
    types = [(s.queue, name, pause) for s in stats for name, pause in s.paused_types.items()]
    found += [HealthIssue("type_paused", queue, pause.until, name) for queue, name, pause in types[:LINES]]
    trimmed = [s for s in stats if s.totals.get("trimmed_dead")]
    found += [HealthIssue("trimmed", s.queue, s.totals["trimmed_dead"]) for s in trimmed[:LINES]]
    if counted.missing:
        found.append(HealthIssue("unreported", number=counted.missing))
    return found
