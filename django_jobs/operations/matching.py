"""How many jobs a bulk operation would take, before it is started."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from django_jobs.browse.counts import queue_names
from django_jobs.browse.groups import matching_groups
from django_jobs.browse.match import Match
from django_jobs.browse.search import is_exact
from django_jobs.core.values import State
from django_jobs.operations.bulk import BATCH, look_at
from django_jobs.stores import get_store


class Matching(NamedTuple):
    """How many jobs of a state match."""

    matching: int
    #: number of jobs that were checked, and of all jobs in that state.
    seen: int
    total: int
    #: True if all were checked.
    whole: bool


def count_matching(state: State, match: Match, seconds: float = 1.0) -> Matching:
    """Count the jobs that an operation would choose now, for about `seconds` at most."""
    store, deadline = get_store(), monotonic() + seconds
    queues = [match.queue] if match.queue else queue_names()
    total = sum(stats.counts.get(state, 0) for stats in store.stats(queues))
    if not match.needs_scan:
        return Matching(total, total, total, True)
    if is_exact(state, match):
        found = sum(group.jobs for group in matching_groups(state, match, queues))
        return Matching(found, total, total, True)
    seen = matching = 0
    for queue in queues:
        cursor = ""
        while True:
            ids, cursor = store.ids(queue, state, cursor, BATCH)
            seen += len(ids)
            matching += sum(info.state is state and match.accepts(info) for info in look_at(queue, ids))
            if monotonic() > deadline:
                whole = not cursor and queue == queues[-1]
                return Matching(matching, seen, max(total, seen), whole)
            if not cursor:
                break
    return Matching(matching, seen, max(total, seen), True)
