"""The errors of jobs that are dead or wait for a retry, as groups over all queues: exact, from the store's index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from django_jobs.browse.counts import queue_names
from django_jobs.browse.match import Match, error_key
from django_jobs.browse.trends import PERIODS
from django_jobs.core.signature import NO_ERROR, signature
from django_jobs.core.values import FINISHED, Attempt, JobInfo, State
from django_jobs.serialization.masking import is_open, masked
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import (
    OTHER_TAGS,
    Bars,
    FailureGroup,
    FailureKind,
    FailureSum,
    Span,
    add_up,
)

#: For so many groups, of job types whose errors may show hidden values, one job is read for a text without them; of
#: further ones the class of the error is shown.
READ_FOR = 10
#: Groups of the store that are counted by time for one page.
MOST_GROUPS = 1_000
#: Groups with so many jobs at most are read together.
FEW = 10
#: ms: no job has a later time.
FOREVER = 10**13


@dataclass(slots=True)
class ErrorGroup:
    """Jobs of all queues that failed with the same kind of error."""

    #: the filter for an address: it says nothing about the error.
    key: str
    #: class of the error, and its message without the parts that vary; as far as the reader may see it.
    error_type: str
    message: str
    count: int = 0
    #: ms
    first: int = 0
    last: int = 0
    #: job type → number of jobs.
    names: dict[str, int] = field(default_factory=dict)
    #: as the store has it: a reader who may not see arguments may not see it.
    signature: str = ""
    #: how many of the store's groups these are, one for each queue and job type; and those, if they were read.
    groups: int = 0
    parts: list[FailureGroup] = field(default_factory=list)


def matching_groups(
    state: State, match: Match, queues: Sequence[str] | None = None, kinds: Collection[FailureKind] | None = None
) -> list[FailureGroup]:
    """Return the store's groups whose jobs match by queue, job type and error; with a tag, those that have all jobs
    with it, and perhaps others (see `are_exact`).

    `queues`: where it looks, unless the match names a queue.  `kinds`: those of all groups there, if they are known."""
    queues = _queues(match, queues)
    if match.tag:
        return tag_groups(state, match.tag, queues)
    chosen = _kinds(state, match, queues, kinds)
    return [group for group in get_store().failure_groups(queues, state, chosen) if group.jobs]


def _queues(match: Match, queues: Sequence[str] | None) -> Sequence[str]:
    return [match.queue] if match.queue else queue_names() if queues is None else queues


def _kinds(
    state: State, match: Match, queues: Sequence[str], known: Collection[FailureKind] | None
) -> list[FailureKind] | None:
    """Return the kinds of groups that match by job type and error; None for all.  The store finds the groups of a kind;
    of the key of an error it knows nothing."""
    if not match.has_groups:
        return None
    known = get_store().failure_kinds(queues)[state] if known is None else known
    return [kind for kind in known if match.name in ("", kind.name) and match.accepts_error(kind.signature)]


def tag_groups(state: State, tag: str, queues: Sequence[str]) -> list[FailureGroup]:
    """Return the groups that have all jobs with this tag: of each queue that of the tag, or that of the tags without
    a group."""
    if tag == OTHER_TAGS:
        return []
    found: dict[str, FailureGroup] = {}
    for group in get_store().failure_tags(queues, state, tag):
        if group.tag == tag or (group.jobs and group.queue not in found):
            found[group.queue] = group
    return [group for group in found.values() if group.jobs]


def are_exact(state: State, match: Match, found: Sequence[FailureGroup] | None = None) -> bool:
    """Return whether the groups for this match have no other jobs than those that match by queue, job type, error and
    tag.  `found`: what `matching_groups` has returned, if the caller has it already."""
    if not match.tag:
        return True
    groups = matching_groups(state, match) if found is None else found
    return not (match.name or match.error) and all(group.tag == match.tag for group in groups)


def error_groups(
    state: State, match: Match, queues: Sequence[str] | None = None, found: Sequence[FailureGroup] | None = None
) -> list[ErrorGroup]:
    """Return the groups of errors of all matching jobs, largest first.  A tag in `match` has no effect on them.

    `queues`: as for `matching_groups`; `found`: what that has returned.  Without it, the store adds up the groups."""
    match = replace(match, tag="")
    if found is None:
        queues = _queues(match, queues)
        sums = get_store().failure_sums(queues, state, _kinds(state, match, queues, None))
    else:
        sums = add_up(found)
    groups = _groups_of(sums)
    for each in found or ():
        groups[each.signature][0].parts.append(each)
    largest = sorted(groups.values(), key=lambda entry: (-entry[0].count, -entry[0].last))
    _show_all(state, largest, arguments=match.arguments)
    return [group for group, _ in largest]


def commonest_errors(
    types: Sequence[tuple[str, str]], *, arguments: bool = True
) -> dict[tuple[str, str], tuple[State, ErrorGroup]]:
    """Return the error that most jobs have, and their state, for each of these job types in one queue (queue, name): of
    the jobs that wait for a retry, or else of the dead ones.  Those without such a job are left out.  `arguments`: the
    reader may see them.

    All are read together: the number of calls does not depend on that of types, but for errors with hidden values."""
    queues, found = sorted({queue for queue, _ in types}), dict[tuple[str, str], tuple[State, ErrorGroup]]()
    kinds = get_store().failure_kinds(queues)
    for state in (State.RETRY, State.DEAD):
        names = {name for queue, name in types if (queue, name) not in found}
        wanted = [kind for kind in kinds[state] if kind.name in names]
        largest: dict[tuple[str, str], FailureGroup] = {}
        for part in get_store().failure_groups(queues, state, wanted) if wanted else ():
            before = largest.get((part.queue, part.name), part)
            if part.jobs and (part.jobs, part.last) >= (before.jobs, before.last):
                largest[part.queue, part.name] = part
        left = [key for key in types if key in largest and key not in found]
        entries = [entry for key in left for entry in _groups_of(add_up([largest[key]])).values()]
        _show_all(state, entries, arguments=arguments)
        found |= {key: (state, group) for key, (group, _) in zip(left, entries, strict=True)}
    return found


def _groups_of(sums: Iterable[FailureSum]) -> dict[str, tuple[ErrorGroup, FailureGroup]]:
    """Return the groups of these errors by signature, each with one of its groups in the store."""
    groups: dict[str, tuple[ErrorGroup, FailureGroup]] = {}
    for part in sums:
        if part.signature not in groups:
            error_type, _, message = part.signature.partition(": ")
            key = error_key(part.signature)
            made = ErrorGroup(key, error_type, message, first=part.first, signature=part.signature)
            groups[part.signature] = made, part.example
        group, _ = groups[part.signature]
        group.count += part.jobs
        group.first, group.last = min(group.first, part.first), max(group.last, part.last)
        group.names[part.name] = group.names.get(part.name, 0) + part.jobs
        group.groups += part.groups
    return groups


def _show_all(state: State, groups: Sequence[tuple[ErrorGroup, FailureGroup]], *, arguments: bool) -> None:
    """Write what this reader may see of the errors."""
    hidden = [(group, part) for group, part in groups if not (arguments and all(map(is_open, group.names)))]
    jobs = one_of_each(state, [part for _, part in hidden[:READ_FOR]])
    for group, _ in hidden:
        group.message = "…" if group.message else ""
    for (group, _), job in zip(hidden, jobs, strict=False):
        show(group, job, arguments=arguments)


class TooMany(ValueError):
    """There are too many groups to count the jobs of a stretch of time for one page."""


def error_groups_within(
    state: State, match: Match, span: Span, queues: Sequence[str] | None = None
) -> list[ErrorGroup]:
    """Return the errors with jobs in a stretch of time, and how many, largest first.  The first and the last time are
    those of all jobs of the error.  Raises TooMany."""
    groups = error_groups(state, match, queues)
    if sum(group.groups for group in groups) > MOST_GROUPS:
        raise TooMany
    read_parts(state, groups, _queues(match, queues))
    bars = Bars(span.since, max(1, (span.before or FOREVER) - span.since), 1)
    parts = [part for group in groups for part in group.parts]
    numbers = iter([number for [number] in get_store().count_bars(state, parts, bars)])
    for group in groups:
        group.count, group.names = 0, {}
        for part in group.parts:
            if number := next(numbers):
                group.count += number
                group.names[part.name] = group.names.get(part.name, 0) + number
    return sorted((group for group in groups if group.count), key=lambda group: (-group.count, -group.last))


def bars_of(state: State, period: str) -> Bars:
    """Return the bars of a period by the time of the state: of finished jobs the last ones, of jobs that wait for a
    retry the next ones.  `period`: "hour", "day" or "week".  The bar of this moment is among them."""
    width, number = PERIODS[period]
    first = get_store().now() // width * width
    return Bars(first - (number - 1) * width if state in FINISHED else first, width, number)


def error_bars(
    state: State, groups: Sequence[ErrorGroup], bars: Bars, queues: Sequence[str] | None = None
) -> list[list[int] | None]:
    """Return for each of these errors how many of its jobs have their time of the state in each bar: exact, of the jobs
    that are in this state now.  None: it was not counted, because there are too many groups for one page.

    `queues`: where the errors were looked for; None for all."""
    sizes = accumulate(group.groups for group in groups)
    some = [group for group, size in zip(groups, sizes, strict=True) if size <= MOST_GROUPS]
    read_parts(state, [group for group in some if not group.parts], queues)
    sizes = accumulate((len(group.parts) for group in some), initial=0)
    found = get_store().count_bars(state, [part for group in some for part in group.parts], bars)
    sums: list[list[int] | None] = []
    for first, last in pairwise(sizes):
        counted = found[first:last]
        sums.append([sum(numbers) for numbers in zip(*counted, strict=True)] if counted else None)
    return sums + [None] * (len(groups) - len(sums))


def read_parts(state: State, groups: Sequence[ErrorGroup], queues: Sequence[str] | None) -> None:
    """Read the store's groups of these errors."""
    kinds = [FailureKind(name, group.signature) for group in groups for name in group.names]
    known = {group.signature: group for group in groups}
    if kinds:
        for part in get_store().failure_groups(queue_names() if queues is None else queues, state, kinds):
            known[part.signature].parts += [part] if part.jobs else []


def one_of_each(state: State, groups: Sequence[FailureGroup]) -> list[JobInfo | None]:
    """Return a job of each of these groups, or None.  Groups with few jobs are read together."""
    few = [group for group in groups if group.jobs <= FEW]
    queues = list(dict.fromkeys(group.queue for group in few))
    jobs = get_store().listed(queues, state, FEW * len(few), groups=few)[0] if few else []
    known = {(job.queue, name_of(job.record), signature(last_of(job))): job for job in jobs}
    found: list[JobInfo | None] = []
    for group in groups:
        job = known.get((group.queue, group.name, group.signature))
        if job is None:  # large, or jobs are told apart by less than their signature
            jobs, _ = get_store().listed([group.queue], state, 1, groups=[group], reverse=True)
            job = next(iter(jobs), None)
        found.append(job)
    return found


def last_of(job: JobInfo) -> Attempt | None:
    """Return the last attempt of a job."""
    return job.attempts[-1] if job.attempts else None


def show(group: ErrorGroup, job: JobInfo | None, *, arguments: bool) -> None:
    """Write what this reader may see of the error, from one of its jobs."""
    if job is None or not job.attempts:
        group.error_type = NO_ERROR
        return
    group.error_type, _, group.message = signature(last_of(masked(job, arguments=arguments))).partition(": ")
