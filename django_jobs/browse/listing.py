"""All jobs of a state, page by page, for programs.  No job that stays in the state is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django_jobs.browse.pages import read_mark, write_mark
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import FailureGroup, Span

#: About so many jobs are checked for one page.
SCAN = 2_000


class Position(NamedTuple):
    """Where the next page begins."""

    #: ms: jobs that end after the first page was read are left out, so that the walk ends.
    until: int
    queue: str
    #: cursor of `Store.walk`.
    cursor: str = ""


def listing(
    state: State,
    queues: Sequence[str],
    accepts: Callable[[JobInfo], bool],
    limit: int,
    position: Position | None = None,
    *,
    span: Span | None = None,
    groups: Sequence[FailureGroup] | None = None,
) -> tuple[list[JobInfo], Position | None]:
    """Return up to `limit` jobs of `state` that `accepts` takes, and where the next page begins (None: no more).

    The jobs are as in `Store.page`.  `span`: only those whose time of the state belongs to it, in the order of time.
    `groups`: only jobs of these groups of the store, in the order of time.
    About SCAN jobs are checked, so a page may have fewer jobs than match.  Raises ValueError if the position does not
    belong to this list, or if jobs of the state cannot be chosen by time."""
    store, found, looked = get_store(), list[JobInfo](), 0
    position = position or Position(store.now(), "")
    if span is not None or groups is not None:
        return within(span, groups, state, queues, accepts, limit, position)
    for queue in sorted(each for each in queues if each >= position.queue):
        cursor = position.cursor if queue == position.queue else ""
        while True:
            ids, cursor = store.walk(queue, state, cursor, limit - len(found), until=position.until)
            found += [info for info in store.get_many(queue, ids) if info.state is state and accepts(info)]
            looked += len(ids)
            if not cursor:
                break
            if len(found) == limit or looked >= SCAN:
                return found, Position(position.until, queue, cursor)
    return found, None


def within(
    span: Span | None,
    groups: Sequence[FailureGroup] | None,
    state: State,
    queues: Sequence[str],
    accepts: Callable[[JobInfo], bool],
    limit: int,
    position: Position,
) -> tuple[list[JobInfo], Position | None]:
    """The same for a stretch of time or for groups; the cursor of the position is the mark of `Store.listed`."""
    store, found, looked = get_store(), list[JobInfo](), 0
    if state in FINISHED:
        span = span or Span()
        span = Span(span.since, min(span.before or position.until + 1, position.until + 1))
    mark = read_mark(position.cursor)
    if position.cursor and mark is None:
        raise ValueError(f"{position.cursor!r:.200} is not the cursor of a list by time.")
    while True:
        infos, mark = store.listed(queues, state, limit - len(found), mark, groups=groups, span=span)
        found += [info for info in infos if accepts(info)]
        looked += limit
        if mark is None:
            return found, None
        if len(found) == limit or looked >= SCAN:
            return found, Position(position.until, "", write_mark(mark))
