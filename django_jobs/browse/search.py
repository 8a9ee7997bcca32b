"""Search for jobs: by exact id, by the store's index of failed jobs, or by text in all of them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from django_jobs.browse.counts import JobCounts, job_counts
from django_jobs.browse.groups import are_exact, matching_groups
from django_jobs.browse.match import Match
from django_jobs.browse.pages import Page, newest_first, page_after, read_mark, write_mark
from django_jobs.browse.query.parsing import terms_of
from django_jobs.browse.query.terms import Notes
from django_jobs.core.values import JobInfo, State
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import GROUPED, FailureGroup
from django_jobs.stores.values.sizes import FIRST_READ, MAX_BATCH, MAX_BYTES, READ_MORE

#: A search goes on to the end and counts all that match; so many of them, the first found, can be shown.
MOST_FOUND = 500
#: Number of found jobs on one page.
SHOWN = 100
#: Queues that are read together.
QUEUES = 50


def find(id: str, queues: Sequence[str]) -> JobInfo | None:
    """Return the job with exactly this id, in any state, in any of these queues."""
    return get_store().find(list(queues), id)


def with_id(states: Sequence[State], match: Match, queues: Sequence[str]) -> list[JobInfo]:
    """Return the job that the match names by its id, if it is in one of these states and queues, and all the rest
    matches."""
    info = find(match.id, [match.queue] if match.queue else queues)
    if info is None or info.state not in states or match.queue not in ("", info.queue):  # a retry may have moved it
        return []
    return [info] if match.accepts(info) else []


def is_exact(state: State, match: Match, found: Sequence[FailureGroup] | None = None) -> bool:
    """Return whether the store finds these jobs at once: failed jobs by queue, and by job type and error or by a tag.
    It does not if a queue has so many tags that it does not keep the jobs of this one apart.  `found`: as for
    `selected`."""
    exact = state in GROUPED and not (match.text or match.terms or match.id or match.types)
    return exact and are_exact(state, match, found)


def selected(
    state: State,
    match: Match,
    after: str = "",
    found: Sequence[FailureGroup] | None = None,
    *,
    reverse: bool | None = None,
) -> Page:
    """Return the page of failed jobs of this type, error and time, of all queues, that begins at `after`; see
    `is_exact`.  `found`: the groups that match, if the caller has them already."""
    groups = matching_groups(state, match) if found is None else found
    queues, total = list({group.queue for group in groups}), number_in(state, match, groups)
    return page_after(state, queues, after, total, groups, span=match.span, reverse=reverse)


def number_in(state: State, match: Match, groups: Sequence[FailureGroup]) -> int:
    """Return how many jobs of these groups belong to the stretch of time."""
    if match.span is None:
        return sum(group.jobs for group in groups)
    return get_store().count_within(list({group.queue for group in groups}), state, match.span, groups)


@dataclass(frozen=True, slots=True)
class Search:
    """A search for text in the jobs of some states, and how far it is."""

    states: list[State]
    match: Match
    #: each state with the queues that are read together, because they have few such jobs.
    parts: list[tuple[State, list[str]]]
    #: number of jobs to check when it began, and checked so far.
    total: int
    seen: int = 0
    #: number of jobs that match, and queue and id of the first MOST_FOUND of them.
    matches: int = 0
    found: list[tuple[str, str]] = field(default_factory=list)
    #: state → number of jobs that match.
    by_state: dict[str, int] = field(default_factory=dict)
    #: position: index in `parts`, and `Page.following` there.
    index: int = 0
    after: str = ""
    #: what was learnt about the terms of a query: see `Notes`.
    has_argument: bool = False
    unknown: int = 0
    #: the first SHOWN of the jobs in `found`, if this process found them.
    jobs: list[JobInfo] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Return whether all jobs were checked."""
        return self.index >= len(self.parts)

    @property
    def percent(self) -> int:
        """Progress, 0–100."""
        return 100 if self.finished else min(99, self.seen * 100 // self.total) if self.total else 0

    @property
    def notes(self) -> Notes:
        """What was learnt about the terms of a query."""
        return Notes(terms_of(self.match.terms), has_argument=self.has_argument, unknown=self.unknown)


def begin(states: Sequence[State], match: Match, counted: JobCounts | None = None) -> Search:
    """Return a search that has checked nothing yet.  A job that moves between these states while the search goes on is
    found once or, if it moves to a state that was checked before, not at all."""
    counted = counted or job_counts()
    names = [match.queue] if match.queue else counted.names
    if match.id:
        jobs = with_id(states, match, names)
        found, by_state = [(info.queue, info.id) for info in jobs], {info.state.value: 1 for info in jobs}
        number = len(jobs)
        return Search(
            list(states), match, [], number, number, number, found, by_state, has_argument=True, jobs=jobs
        )  # fmt: skip
    queues = {name: stats.counts for name, stats in counted.queues.items() if name in names}
    if match.queue and match.queue not in queues:
        queues[match.queue] = get_store().stats([match.queue])[0].counts
    parts, total = list[tuple[State, list[str]]](), 0
    for state in states:
        numbers = {name: counts.get(state, 0) for name, counts in queues.items()}
        parts += [(state, some) for some in together(names, numbers)]
        if match.tag and state in GROUPED:
            total += number_in(state, match, matching_groups(state, match, names))
        else:
            total += get_store().count_within(names, state, match.span) if match.span else sum(numbers.values())
    return Search(list(states), match, parts, total)


def together(names: Sequence[str], numbers: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield all these queues, those together that one batch can read; `numbers`: how many jobs they have, if known."""
    some, size = list[str](), 0
    for name in names:
        number = numbers.get(name, 0)
        if some and (size + number > MAX_BATCH or len(some) == QUEUES):
            yield some
            some, size = [], 0
        some, size = [*some, name], size + number
    if some:
        yield some


def go_on(search: Search, seconds: float) -> Search:
    """Check further jobs, for about `seconds`; at least one batch."""
    deadline, size, largest = monotonic() + seconds, FIRST_READ, 1
    groups = dict[State, list[FailureGroup]]()
    if search.match.has_groups:
        groups = {state: matching_groups(state, search.match) for state in search.states if state in GROUPED}
    while not search.finished:
        state, queues = search.parts[search.index]
        chosen = frozenset(queues)
        mine = [group for group in groups[state] if group.queue in chosen] if state in groups else None
        jobs, mark = get_store().listed(
            queues,
            state,
            size,
            read_mark(search.after),
            groups=mine,
            reverse=newest_first(state),
            span=search.match.span,
        )
        # Groups by a tag were not chosen by job type and error.
        by_error = mine is not None and not search.match.tag
        accepts, known = search.match.accepts_rest if by_error else search.match.accepts, set(search.found)
        notes = search.notes
        shown = [info for info in jobs if search.match.shows(info)]
        for info in shown:
            notes.see(info)
        found = [info for info in shown if accepts(info) and (info.queue, info.id) not in known]
        search = replace(
            search,
            seen=search.seen + len(shown),
            matches=search.matches + len(found),
            by_state=search.by_state | {state.value: search.by_state.get(state, 0) + len(found)},
            found=[*search.found, *((info.queue, info.id) for info in found)][:MOST_FOUND],
            has_argument=bool(search.match.terms) and notes.has_argument,
            unknown=notes.unknown,
            jobs=[*search.jobs, *found][:SHOWN],
            index=search.index if mark else search.index + 1,
            after=write_mark(mark) if mark else "",
        )
        largest = max([largest, *(len(info.record) for info in jobs)])
        size = min(MAX_BATCH, size * READ_MORE, max(1, MAX_BYTES // largest))
        if monotonic() >= deadline:
            break
    return search
