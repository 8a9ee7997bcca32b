"""Pages of the jobs in one state, of one queue or of several queues together."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from django_jobs.browse.counts import JobCounts, job_counts
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import FailureGroup, Mark, Span

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


def backwards(state: State, reverse: bool | None) -> bool:
    """Return this direction of a list, or the usual one of the state if it is None."""
    return newest_first(state) if reverse is None else reverse


def page(
    state: State,
    queue: str | None = None,
    number: int = 1,
    after: str = "",
    *,
    counted: JobCounts | None = None,
    span: Span | None = None,
    reverse: bool | None = None,
) -> Page:
    """Return a page of the jobs in `state`; `span`: only those of this stretch of time; `reverse`: as in `Store.page`,
    None for `newest_first`.

    Of one queue and any time: page `number`, the last page if the number is too high.  Of several queues, or of a
    stretch of time: the page that begins at `after` (`Page.following` of the page before it)."""
    if span is not None:
        names = [queue] if queue is not None else (counted or job_counts()).names
        return page_after(state, names, after, get_store().count_within(names, state, span), span=span, reverse=reverse)
    if queue is not None:
        return page_of_queue(state, queue, number, reverse=reverse)
    counted = counted or job_counts()
    holding = counted.holding(state)
    if len(holding) == 1 and not counted.missing and not after:
        total = counted.queues[holding[0]].counts[state]
        return page_of_queue(state, holding[0], number, total, reverse=reverse)
    # A queue that was not counted, or got its first job since, is asked too.
    return page_after(state, counted.names, after, counted.counts[state], reverse=reverse)


def page_of_queue(
    state: State, queue: str, number: int, total: int | None = None, *, reverse: bool | None = None
) -> Page:
    """Return a page of one queue; every page costs the same."""
    if total is None:
        total = get_store().stats([queue])[0].counts.get(state, 0)
    pages = max(1, -(-total // PAGE))
    number = min(max(1, number), pages)
    jobs = get_store().page(queue, state, (number - 1) * PAGE, PAGE, reverse=backwards(state, reverse))
    return Page(jobs, total, number, pages)


def page_after(
    state: State,
    queues: Sequence[str],
    after: str,
    total: int,
    groups: Sequence[FailureGroup] | None = None,
    *,
    span: Span | None = None,
    reverse: bool | None = None,
) -> Page:
    """Return the page of several queues, or of these groups of failed jobs, that begins at `after`."""
    backward = backwards(state, reverse)
    jobs, mark = get_store().listed(
        queues, state, PAGE, read_mark(after), groups=groups, reverse=backward, span=span
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
