"""The part of the store contract for lists over several queues and for groups of failed jobs.  It only reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from django_jobs.core.values import FINISHED, JobInfo, State


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
#: So many tags of failed jobs have groups of their own in each queue, if the store has a bound (lua/lib/failed.lua).
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


class ListStore(ABC):
    """Lists over several queues.  Every method costs O(number of queues and of what it returns)."""

    @abstractmethod
    def failure_groups(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureGroup]:
        """Return the groups of the dead jobs, or of those that wait for a retry, in these queues; some may be empty.
        Raises ValueError for another state.

        `kinds`: only groups of these job types and errors, which the store finds without the others.  All groups of 500
        queues may be 70,000."""

    @abstractmethod
    def failure_kinds(self, queues: Sequence[str]) -> dict[State, set[FailureKind]]:
        """Return the job types and errors of all groups of each of the two states; some groups may be empty."""

    @abstractmethod
    def failure_sums(
        self, queues: Sequence[str], state: State, kinds: Collection[FailureKind] | None = None
    ) -> list[FailureSum]:
        """Return the groups that have jobs, added up over the queues: one sum for each job type and error."""

    @abstractmethod
    def failure_tags(self, queues: Sequence[str], state: State, tag: str = "") -> list[FailureGroup]:
        """Return a group for each tag of the dead jobs, or of those that wait for a retry, in these queues; with `tag`,
        only the group of this tag and that of OTHER_TAGS.  A job with several tags is in several groups.  Some may be
        empty.  Raises ValueError for another state.

        A group of a tag has all jobs of its queue with this tag.  Jobs with a tag that has no group are in that of
        OTHER_TAGS.  Times are those of failures, as in `failure_groups`."""

    def tag_sums(self, queues: Sequence[str], state: State) -> list[FailureSum]:
        """Return the groups by tags that have jobs, added up over the queues: `name` is the tag or OTHER_TAGS, `groups`
        how many of the queues have such a group.  Raises ValueError as `failure_tags` does."""
        return add_up(group._replace(name=group.tag) for group in self.failure_tags(queues, state))

    @abstractmethod
    def listed(
        self,
        queues: Sequence[str],
        state: State,
        limit: int,
        after: Mark | None = None,
        *,
        groups: Sequence[FailureGroup] | None = None,
        reverse: bool = False,
        span: Span | None = None,
    ) -> tuple[list[JobInfo], Mark | None]:
        """Return at most `limit` jobs in one state, of all these queues together, each as in `page`, and where the list
        goes on (None: these were the last).

        Sorted by the time of the state; queued jobs by priority, then arrival; blocked jobs in any stable order.
        `groups`: only jobs of these groups; of each queue only one group by tags.  A job that stays where it is is
        returned exactly once, whatever comes and goes between the calls.  Raises ValueError for a mark that does not
        belong to this list.

        `span`: only jobs whose time of the state belongs to it; found by an index.  Succeeded jobs with `keep_result`
        are left out then, because no index has the time of their end.  Raises ValueError for a state without a time."""

    @abstractmethod
    def count_within(
        self, queues: Sequence[str], state: State, span: Span, groups: Sequence[FailureGroup] | None = None
    ) -> int:
        """Return how many jobs `listed` would return in all for this span, by an index.  Raises ValueError as it does.

        This takes a look at the index for each queue or group."""

    @abstractmethod
    def count_bars(self, state: State, groups: Sequence[FailureGroup], bars: Bars) -> list[list[int]]:
        """Return for each of these groups how many of its jobs have their time of the state in each bar: exact, by an
        index.  Raises ValueError for a state without groups.  A large group costs a look at the index for each bar."""
