"""Pages of the jobs in one state, of one queue or of several queues together."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from django_jobs.browse.counts import JobCounts, job_counts, queue_names
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.stores import get_store
from django_jobs.stores.contract.lists import FailureGroup, Mark

__all__ = ["PAGE", "Page", "newest_first", "page", "page_after", "queue_names"]

#: Jobs per page.
PAGE = 50


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list of jobs."""

    jobs: list[JobInfo]
    #: number of jobs in the list.
    total: int
    #: page number, from 1, and number of pages; a list over several queues has no numbers.
    number: int = 0
    pages: int = 0
    #: where the next page of a list without numbers begins; "" = there is none.
    following: str = ""


def newest_first(state: State) -> bool:
    """Return True for finished states: the last to end comes first.  In other states, the next to run comes first."""
    return state in FINISHED


def page(
    state: State, queue: str | None = None, number: int = 1, after: str = "", *, counted: JobCounts | None = None
) -> Page:
    """Return a page of the jobs in `state`.

    Of one queue: page `number`, the last page if the number is too high.  Of several queues: the page that begins at
    `after` (`Page.following` of the page before it)."""
    if queue is not None:
        return page_of_queue(state, queue, number)
    counted = counted or job_counts()
    holding = counted.holding(state)
    if len(holding) == 1 and not after:
        return page_of_queue(state, holding[0], number, counted.queues[holding[0]].counts[state])
    # A queue that was not counted, or got its first job since, is asked too.
    return page_after(state, counted.names, after, counted.counts[state])


def page_of_queue(state: State, queue: str, number: int, total: int | None = None) -> Page:
    """Return a page of one queue; every page costs the same."""
    if total is None:
        total = get_store().stats([queue])[0].counts.get(state, 0)
    pages = max(1, -(-total // PAGE))
    number = min(max(1, number), pages)
    jobs = get_store().page(queue, state, (number - 1) * PAGE, PAGE, reverse=newest_first(state))
    return Page(jobs, total, number, pages)


def page_after(
    state: State, queues: Sequence[str], after: str, total: int, groups: Sequence[FailureGroup] | None = None
) -> Page:
    """Return the page of several queues, or of these groups of failed jobs, that begins at `after`."""
    jobs, mark = get_store().listed(
        queues, state, PAGE, read_mark(after), groups=groups, reverse=newest_first(state)
    )  # fmt: skip
    return Page(jobs, total, following=write_mark(mark) if mark else "")


def write_mark(mark: Mark) -> str:
    """Return a mark as text for an address."""
    return urlsafe_b64encode(json.dumps(mark).encode()).decode().rstrip("=")


def read_mark(text: str) -> Mark | None:
    """Read what write_mark wrote; None for "", and for a text that somebody has made up."""
    try:
        score, queue, member = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        float(score) if not score.startswith("[") else None
    except (ValueError, TypeError, AttributeError):
        return None
    return Mark(score, str(queue), str(member))
