"""Lists over several queues, and groups of failed jobs: what the store takes and returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django_jobs.core.values import FINISHED, State


class FailureGroup(NamedTuple):
    """Dead jobs of one queue, or jobs in it that wait for a retry, of one job type and one error."""

    queue: str
    name: str
    #: as core.signature makes it; if a queue has very many errors, without the message, or only "…".
    signature: str
    jobs: int
    #: ms: when the first and the last of them failed; perhaps of those, too, that have left the group.
    first: int
    last: int
    #: what the store knows it by.
    number: int = 0
    #: of a group that `failure_tags` returns: the tag, or OTHER_TAGS; name and signature are then empty.
    tag: str = ""


#: The group of the jobs with a tag that has no group of its own, because the queue has too many tags.  No tag is so.
OTHER_TAGS = "*"
#: Maximum number of tags of failed jobs with a group of their own in each queue (lib/ends/failed.lua).
MOST_TAGS = 500


class FailureKind(NamedTuple):
    """A job type and an error; see FailureGroup."""

    name: str
    signature: str


class FailureSum(NamedTuple):
    """The jobs of one kind in several queues together; see FailureGroup."""

    name: str
    signature: str
    #: groups with jobs: at most one in each queue.
    groups: int
    jobs: int
    first: int
    last: int
    #: one of these groups: that with the fewest jobs, as far as the store knows, because it is the quickest to read.
    example: FailureGroup


class Mark(NamedTuple):
    """A job's place in a list over several queues.  The list goes on behind it, even if the job has left."""

    #: what the list is sorted by, in the form of the store.
    score: str
    queue: str
    member: str


#: States whose jobs the store keeps in groups.
GROUPED = frozenset({State.DEAD, State.RETRY})
#: States whose jobs the store keeps in the order of a time: due, or ended.
TIMED = FINISHED | {State.SCHEDULED, State.RETRY}


class Span(NamedTuple):
    """A stretch of time, in ms: a time belongs to it if `since` <= time < `before`.  0 = no limit at that end."""

    since: int = 0
    before: int = 0

    def has(self, at: float) -> bool:
        """Return whether this time (ms) belongs to it."""
        return self.since <= at and (not self.before or at < self.before)


class Bars(NamedTuple):
    """Neighbouring stretches of time of one width, in ms: bar `i` begins at `first + i * width`."""

    first: int
    width: int
    number: int

    @property
    def end(self) -> int:
        """Where the last bar ends, ms."""
        return self.first + self.width * self.number


def add_up(groups: Iterable[FailureGroup]) -> list[FailureSum]:
    """Return the sums of these groups, without empty ones."""
    by_kind: dict[tuple[str, str], list[FailureGroup]] = {}
    for group in groups:
        if group.jobs:
            by_kind.setdefault((group.name, group.signature), []).append(group)
    return [
        FailureSum(
            *kind,
            len(some),
            sum(group.jobs for group in some),
            min(group.first for group in some),
            max(group.last for group in some),
            min(some, key=_jobs_of),
        )
        for kind, some in by_kind.items()
    ]


def _jobs_of(group: FailureGroup) -> int:
    return group.jobs


def merged(found: Iterable[FailureSum]) -> list[FailureSum]:
    """Return one sum for each job type and error."""
    sums: dict[tuple[str, str], FailureSum] = {}
    for each in found:
        key = each.name, each.signature
        known = sums.get(key)
        if known is not None:
            groups, jobs = known.groups + each.groups, known.jobs + each.jobs
            first, last = min(known.first, each.first), max(known.last, each.last)
            example = min(known.example, each.example, key=_jobs_of)
            each = FailureSum(*key, groups, jobs, first, last, example)
        sums[key] = each
    return list(sums.values())


def check_grouped(state: State) -> None:
    """Raise ValueError unless the store keeps the jobs of this state in groups."""
    if state not in GROUPED:
        raise ValueError(f"Jobs that are {state} have no groups: only dead jobs and those that wait for a retry.")


def check_span(state: State) -> None:
    """Raise ValueError unless jobs of this state can be chosen by time."""
    if state not in TIMED:
        raise ValueError(f"Jobs that are {state} cannot be chosen by time: the store keeps them in no order of time.")
