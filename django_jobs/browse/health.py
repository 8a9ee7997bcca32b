"""Which workers take the jobs of a queue, why none does, and the names of jobs that no live worker knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django_jobs.browse.counts import LIVE_QUEUES, JobCounts
from django_jobs.conf.queues import covers
from django_jobs.core.values import State, WorkerInfo
from django_jobs.serialization.checked import list_of
from django_jobs.stores import get_store
from django_jobs.stores.values.answers import ParkedName

#: A worker in one of these states claims nothing.
CLOSED = frozenset({"quiet", "stopping"})


def takers(queue: str, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Return the workers that serve this queue, or will when they have found it.  One whose queues cannot be read may
    take any."""
    found = []
    for worker in workers:
        served = worker.info.get("queues")
        if not isinstance(served, list) or queue in served or _finds(worker, queue):
            found.append(worker)
    return found


def untaken(queues: Iterable[str], workers: Sequence[WorkerInfo]) -> list[str]:
    """Return those of the queues that no worker takes, in order."""
    named = {str(name) for worker in workers for name in list_of(worker.info.get("queues"))}
    return sorted(queue for queue in queues if queue not in named and not takers(queue, workers))


def shown_queues(info: Mapping[str, Any]) -> list[str]:
    """Return the queues of a worker in few words: a pattern stands for the queues that were found by it."""
    patterns = list_of(info.get("patterns"))
    names = [name for name in list_of(info.get("queues")) if not any(covers(each, str(name)) for each in patterns)]
    return [str(each) for each in (*names, *patterns)]


def _finds(worker: WorkerInfo, queue: str) -> bool:
    left = any(covers(each, queue) for each in list_of(worker.info.get("excluded")))
    return not left and any(covers(each, queue) for each in list_of(worker.info.get("patterns")))


def unserved(queue: str, workers: Sequence[WorkerInfo]) -> tuple[str, Sequence[WorkerInfo]]:
    """Return why no worker claims jobs of this queue, "" if one does, and the workers that this concerns."""
    if not workers:
        return "no_workers", ()
    serving = takers(queue, workers)
    if not serving:
        return "no_worker_takes_queue", workers
    open_ = [each for each in serving if each.info.get("state") not in CLOSED]
    if not open_:
        return "workers_quiet", serving
    kept = [each for each in open_ if queue not in list_of(each.info.get("closed_queues"))]
    return ("", kept) if kept else ("queue_left_out", open_)


def unknown_names(counted: JobCounts, workers: Sequence[WorkerInfo]) -> list[ParkedName]:
    """Return the names that jobs wait for and no live worker knows.  Asks only queues that have blocked jobs."""
    found = []
    for queue in counted.holding(State.BLOCKED)[:LIVE_QUEUES]:
        serving = takers(queue, workers)
        found += [parked for parked in get_store().parked(queue) if not knowing(serving, parked.unknown_to)]
    return found


def knowing(workers: Iterable[WorkerInfo], unknown_to: frozenset[str]) -> list[WorkerInfo]:
    """Return the workers that may know a name.  `unknown_to`: the digests of those that do not."""
    return [each for each in workers if each.info.get("knows") not in unknown_to]
