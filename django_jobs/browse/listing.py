"""All jobs of a state, page by page, for programs.  No job that stays in the state is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django_jobs.core.values import JobInfo, State
from django_jobs.stores import get_store

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
) -> tuple[list[JobInfo], Position | None]:
    """Return up to `limit` jobs of `state` that `accepts` takes, and where the next page begins (None: no more).

    The jobs are as in `Store.page`.  About SCAN jobs are checked, so a page may have fewer jobs than match.  Raises
    ValueError if the position does not belong to this list."""
    store, found, looked = get_store(), list[JobInfo](), 0
    position = position or Position(store.now(), "")
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
