"""The errors of jobs that are dead or wait for a retry, as groups over all queues: exact, from the store's index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from django_jobs.browse.counts import queue_names
from django_jobs.browse.match import Match, error_key
from django_jobs.browse.trends import PERIODS
from django_jobs.core.signature import NO_ERROR, signature
from django_jobs.core.values import FINISHED, State
from django_jobs.serialization.masking import is_open, masked
from django_jobs.stores import get_store
from django_jobs.stores.contract.lists import Bars, FailureGroup

__all__ = ["GROUPED", "ErrorGroup", "bars_of", "error_bars", "error_groups", "matching_groups"]

#: States whose jobs the store keeps in groups.
GROUPED = frozenset({State.DEAD, State.RETRY})
#: For so many groups, of job types whose errors may show hidden values, one job is read for a text without them; of
#: further ones the class of the error is shown.
READ_FOR = 10
#: Groups of the store that are counted by time for one page, and the jobs of them that may have to be read for it (on
#: Redis as many as 6,000 parts of the index have, about half a million): this takes up to 0.1 s.
MOST_GROUPS, MOST_JOBS = 1_000, 300_000


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
    parts: list[FailureGroup] = field(default_factory=list)


def matching_groups(
    state: State, match: Match, queues: Sequence[str] | None = None, found: Sequence[FailureGroup] | None = None
) -> list[FailureGroup]:
    """Return the store's groups whose jobs match by queue, job type and error.

    `found`: all groups of these queues, if the caller has them already."""
    if found is None:
        queues = [match.queue] if match.queue else queue_names() if queues is None else queues
        found = get_store().failure_groups(queues, state)
    return [
        group
        for group in found
        if group.jobs
        and match.queue in ("", group.queue)
        and match.name in ("", group.name)
        and match.accepts_error(group.signature)
    ]


def error_groups(state: State, match: Match, found: Sequence[FailureGroup] | None = None) -> list[ErrorGroup]:
    """Return the groups of errors of all matching jobs, largest first."""
    groups: dict[str, ErrorGroup] = {}
    for part in matching_groups(state, match, found=found):
        group = groups.get(part.signature)
        if group is None:
            error_type, _, message = part.signature.partition(": ")
            group = groups[part.signature] = ErrorGroup(
                error_key(part.signature), error_type, message, first=part.first
            )
        group.count += part.jobs
        group.first, group.last = min(group.first, part.first), max(group.last, part.last)
        group.names[part.name] = group.names.get(part.name, 0) + part.jobs
        group.parts.append(part)
    largest = sorted(groups.values(), key=lambda group: (-group.count, -group.last))
    left = READ_FOR
    for group in largest:
        if not (match.arguments and all(is_open(name) for name in group.names)):
            left -= 1
            hide(state, group, arguments=match.arguments, read=left >= 0)
    return largest


def bars_of(state: State, period: str) -> Bars:
    """Return the bars of a period by the time of the state: of finished jobs the last ones, of jobs that wait for a
    retry the next ones.  `period`: "hour", "day" or "week".  The bar of this moment is among them."""
    width, number = PERIODS[period]
    first = get_store().now() // width * width
    return Bars(first - (number - 1) * width if state in FINISHED else first, width, number)


def error_bars(state: State, groups: Sequence[ErrorGroup], bars: Bars) -> list[list[int] | None]:
    """Return for each of these errors how many of its jobs have their time of the state in each bar: exact, of the jobs
    that are in this state now.  None: it was not counted, because there are too many jobs or queues for one page."""
    sizes = list(accumulate((len(group.parts) for group in groups), initial=0))
    some = [group for group, size in zip(groups, sizes[1:], strict=True) if size <= MOST_GROUPS]
    parts = [part for group in some for part in group.parts]
    found = get_store().count_bars(state, parts, bars, most=MOST_JOBS)
    sums: list[list[int] | None] = []
    for first, last in pairwise(sizes[: len(some) + 1]):
        counted = [each for each in found[first:last] if each is not None]
        whole = len(counted) == last - first
        sums.append([sum(numbers) for numbers in zip(*counted, strict=True)] if whole else None)
    return sums + [None] * (len(groups) - len(sums))


def hide(state: State, group: ErrorGroup, *, arguments: bool, read: bool) -> None:
    """Replace the message by what this reader may see of it."""
    group.message = "…" if group.message else ""
    if not read:
        return
    jobs, _ = get_store().listed([group.parts[0].queue], state, 1, groups=group.parts[:1], reverse=True)
    if jobs and jobs[0].attempts:
        shown = signature(masked(jobs[0], arguments=arguments).attempts[-1])
        group.error_type, _, group.message = shown.partition(": ")
    elif not jobs or not jobs[0].attempts:
        group.error_type = NO_ERROR
