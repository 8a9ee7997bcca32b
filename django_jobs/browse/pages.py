"""Pages of the jobs in one state, of one queue or of several queues together."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge

from django_jobs.browse.counts import JobCounts, job_counts, queue_names
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.stores import get_store

__all__ = ["PAGE", "Page", "order_key", "page", "queue_names"]

#: Jobs per page.
PAGE = 50
#: A page over several queues is merged from the beginning of each queue, so its cost grows with its number.  These are
#: the limits of the depth and of the number of queues (each takes up to six of the thirty commands that a page may
#: cost).  A single queue has no such limit: each of its pages costs the same.
MERGE_DEPTH = 500
MERGE_QUEUES = 4


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list of jobs."""

    jobs: list[JobInfo]
    #: page number, from 1.
    number: int
    #: number of pages that can be shown.
    pages: int
    #: number of jobs in that state, in all queues asked for.
    total: int
    #: number of queues that have such jobs but were left out of the merge.
    left_out: int = 0

    @property
    def bounded(self) -> bool:
        """Return whether some jobs can only be seen by choosing a queue."""
        return self.left_out > 0 or self.total > self.pages * PAGE


def newest_first(state: State) -> bool:
    """Return True for finished states: the last to end comes first.  In other states, the next to run comes first."""
    return state in FINISHED


def page(state: State, queue: str | None = None, number: int = 1, *, counted: JobCounts | None = None) -> Page:
    """Return page `number` of the jobs in `state`, of one queue or of all; the last page if the number is too high."""
    if queue is not None:
        return page_of_queue(state, queue, number)
    counted = counted or job_counts()
    holding = counted.holding(state)
    if len(holding) == 1:
        return page_of_queue(state, holding[0], number, counted.queues[holding[0]].counts[state])
    total = counted.counts[state]
    merged = holding[:MERGE_QUEUES]
    reachable = min(MERGE_DEPTH, sum(counted.queues[name].counts[state] for name in merged))
    pages, number = clamp(reachable, number)
    reverse = newest_first(state)
    lists = [get_store().page(name, state, 0, number * PAGE, reverse=reverse) for name in merged]
    jobs = list(merge(*lists, key=order_key(state), reverse=reverse))[(number - 1) * PAGE : number * PAGE]
    return Page(jobs, number, pages, total, len(holding) - len(merged))


def page_of_queue(state: State, queue: str, number: int, total: int | None = None) -> Page:
    """Return a page of one queue; every page costs the same."""
    if total is None:
        total = get_store().stats([queue])[0].counts.get(state, 0)
    pages, number = clamp(total, number)
    jobs = get_store().page(queue, state, (number - 1) * PAGE, PAGE, reverse=newest_first(state))
    return Page(jobs, number, pages, total)


def clamp(total: int, number: int) -> tuple[int, int]:
    """Return the number of pages, and the number of the page to show."""
    pages = max(1, -(-total // PAGE))
    return pages, min(max(1, number), pages)


def order_key(state: State):  # type: ignore[no-untyped-def]
    """Return the key that merges jobs of several queues: their time, if the state has one."""
    return lambda info: info.at
