"""The names of jobs that no live worker knows."""

from __future__ import annotations

from typing import Any

from django_jobs.browse.counts import LIVE_QUEUES, JobCounts
from django_jobs.core.values import State, WorkerInfo
from django_jobs.stores import get_store
from django_jobs.stores.values.answers import ParkedName


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
