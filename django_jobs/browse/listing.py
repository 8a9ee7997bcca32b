"""All jobs of a state, page by page, for programs.  No job that stays in the state is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django_jobs.browse.pages import read_mark, write_mark
from django_jobs.core.values import JobInfo, State
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import FailureGroup, Span

#: About so many jobs are checked for one page, or queues are asked.
SCAN = 2_000


class Position(NamedTuple):
    """Where the next page begins."""

    #: ms: jobs that end after the first page was read are left out, so that the list ends.
    until: int
    #: the mark of `Store.listed` as text.
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

    The jobs are as in `Store.listed`, and in its order.  `span`: only those whose time of the state belongs to it.
    `groups`: only jobs of these groups of the store.
    About SCAN jobs are checked, so a page may have fewer jobs than match.  Raises ValueError if the position does not
    belong to this list, or if jobs of the state cannot be chosen by time."""
    store, found, looked = get_store(), list[JobInfo](), 0
    position = position or Position(store.now())
    mark = read_mark(position.cursor)
    if position.cursor and mark is None:
        raise ValueError(f"{position.cursor!r:.200} is not the cursor of a list.")
    while True:
        infos, mark = store.listed(
            queues, state, limit - len(found), mark, groups=groups, span=span, until=position.until
        )  # fmt: skip
        found += [info for info in infos if accepts(info)]
        looked += max(limit, len(queues))
        if mark is None:
            return found, None
        if len(found) == limit or looked >= SCAN:
            return found, Position(position.until, write_mark(mark))
