"""How many jobs a bulk operation would take, before it is started."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import NamedTuple

from django_jobs.browse.counts import queue_names
from django_jobs.browse.groups import matching_groups
from django_jobs.browse.match import Match
from django_jobs.browse.pages import read_mark, write_mark
from django_jobs.browse.search import is_exact, number_in
from django_jobs.core.values import JobInfo, State
from django_jobs.operations.bulk import BATCH, INDEXED_BATCH, look_at
from django_jobs.stores import get_store


class Matching(NamedTuple):
    """How many jobs of a state match."""

    matching: int
    #: number of jobs that were checked, and of all jobs in that state.
    seen: int
    total: int
    #: True if all were checked.
    whole: bool


def some_of(state: State, match: Match, queue: str, cursor: str) -> tuple[Iterable[JobInfo], str, int]:
    """Return the next jobs of this queue and time to be checked, the cursor behind them, and their number."""
    if match.span is None:
        ids, cursor = get_store().ids(queue, state, cursor, BATCH)
        return look_at(queue, ids), cursor, len(ids)
    infos, mark = get_store().listed([queue], state, INDEXED_BATCH, read_mark(cursor), span=match.span)
    return infos, write_mark(mark) if mark else "", len(infos)


def count_matching(state: State, match: Match, seconds: float = 1.0) -> Matching:
    """Count the jobs that an operation would choose now, for about `seconds` at most."""
    store, deadline = get_store(), monotonic() + seconds
    queues = [match.queue] if match.queue else queue_names()
    total = sum(stats.counts.get(state, 0) for stats in store.stats(queues))
    if not match.needs_scan:
        found = store.count_within(queues, state, match.span) if match.span else total
        return Matching(found, total, total, True)
    if is_exact(state, match):
        found = number_in(state, match, matching_groups(state, match, queues))
        return Matching(found, total, total, True)
    total = store.count_within(queues, state, match.span) if match.span else total
    seen = matching = 0
    for queue in queues:
        cursor = ""
        while True:
            infos, cursor, number = some_of(state, match, queue, cursor)
            seen += number
            matching += sum(info.state is state and match.accepts(info) for info in infos)
            if monotonic() > deadline:
                whole = not cursor and queue == queues[-1]
                return Matching(matching, seen, max(total, seen), whole)
            if not cursor:
                break
    return Matching(matching, seen, max(total, seen), True)
