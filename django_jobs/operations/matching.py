"""Which jobs match, and how many: for lists, and before a bulk operation is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from django_jobs.browse.counts import job_counts, queue_names
from django_jobs.browse.groups import matching_groups
from django_jobs.browse.match import Match
from django_jobs.browse.pages import page
from django_jobs.browse.query.parsing import terms_of
from django_jobs.browse.query.terms import Notes
from django_jobs.browse.search import begin, go_on, is_exact, selected, with_id
from django_jobs.core.values import FINISHED, JobInfo, QueueStats, State
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import GROUPED

#: Where the jobs of a paused type wait: in the queue, or held back once a worker has met them.
BEHIND = (State.QUEUED, State.BLOCKED)
#: The jobs behind one paused type are counted for so long (s), in each state.
ONE = 0.1
#: Jobs of a sample.
SAMPLE = 5
#: Jobs that are read at once for a list.
READ = 200


@dataclass(frozen=True, slots=True)
class Listed:
    """The first jobs of a state that match."""

    jobs: Sequence[JobInfo]
    #: how many were checked, and how many the state has where they were looked for.
    checked: int
    total: int
    #: what was learnt about the terms of the query, one sentence each.
    notes: Sequence[str] = ()


class Matching(NamedTuple):
    """How many jobs of a state match."""

    matching: int
    #: number of jobs that were checked, and of all jobs in that state; a user who may see some job types only can be
    #: told the first.
    seen: int
    total: int
    #: True if all were checked.
    whole: bool
    #: the first of the jobs that match.
    sample: Sequence[JobInfo]
    #: what was learnt about the terms of a query.
    notes: Notes


def count_matching(state: State, match: Match, seconds: float = 1.0) -> Matching:
    """Count the jobs that an operation would choose now, for about `seconds` at most."""
    queues = [match.queue] if match.queue else queue_names()
    total = sum(stats.counts.get(state, 0) for stats in get_store().stats(queues))
    if not match.needs_scan:
        found = page(state, match.queue or None, span=match.span)
        return Matching(found.total, total, total, True, found.jobs[:SAMPLE], Notes(()))
    if is_exact(state, match):
        found = selected(state, match)
        return Matching(found.total, total, total, True, found.jobs[:SAMPLE], Notes(()))
    search = go_on(begin([state], match), seconds)
    checked = total if search.finished and not match.types else search.seen
    return Matching(
        search.matches, checked, max(total, search.seen), search.finished, search.jobs[:SAMPLE], search.notes
    )


def first(state: State, match: Match, limit: int) -> Listed:
    """Return up to `limit` jobs that match, in the order of the list.  Looks on until it has found them."""
    queues = [match.queue] if match.queue else queue_names()
    if match.id:
        found = with_id([state], match, queues)
        return Listed(found, len(found), len(found))
    groups = matching_groups(state, match, queues) if state in GROUPED and match.has_groups else None
    total = get_store().count_within(queues, state, match.span) if match.span else job_counts(queues).counts[state]
    if groups is not None and match.tag:
        total = sum(group.jobs for group in groups)
    jobs: list[JobInfo] = []
    checked, after, notes = 0, None, Notes(terms_of(match.terms))
    while len(jobs) < limit:
        some, after = get_store().listed(
            queues, state, READ, after, groups=groups, reverse=state in FINISHED, span=match.span
        )  # fmt: skip
        for info in some:
            if len(jobs) < limit:
                checked += 1
                notes.see(info)
                jobs += [info] if match.accepts(info) else []
        if after is None:
            break
    return Listed(jobs, checked, max(total, checked), notes.sentences())


def behind_type(stats: QueueStats, name: str, deadline: float) -> tuple[int, bool]:
    """Return how many jobs of this type wait in the queue, and whether all were counted before the deadline
    (`monotonic`)."""
    number, whole = 0, True
    for state in BEHIND:
        if stats.counts.get(state, 0):
            if monotonic() > deadline:
                return number, False
            counted = count_matching(state, Match(stats.queue, name), ONE)
            number, whole = number + counted.matching, whole and counted.whole
    return number, whole
