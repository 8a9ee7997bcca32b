"""The part of the store contract for lists over several queues and for groups of failed jobs.  It only reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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


class Mark(NamedTuple):
    """A job's place in a list over several queues.  The list goes on behind it, even if the job has left."""

    #: what the list is sorted by, in the form of the store.
    score: str
    queue: str
    member: str


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


def check_span(state: State) -> None:
    """Raise ValueError unless jobs of this state can be chosen by time."""
    if state not in TIMED:
        raise ValueError(f"Jobs that are {state} cannot be chosen by time: the store keeps them in no order of time.")


class ListStore(ABC):
    """Lists over several queues.  Every method costs O(number of queues and of what it returns)."""

    @abstractmethod
    def failure_groups(self, queues: Sequence[str], state: State) -> list[FailureGroup]:
        """Return all groups of the dead jobs, or of those that wait for a retry, in these queues; some may be empty.
        Raises ValueError for another state."""

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
        `groups`: only jobs of these groups.  A job that stays where it is is returned exactly once, whatever comes and
        goes between the calls.  Raises ValueError for a mark that does not belong to this list.

        `span`: only jobs whose time of the state belongs to it; found by an index.  Succeeded jobs with `keep_result`
        are left out then, because no index has the time of their end.  Raises ValueError for a state without a time."""

    @abstractmethod
    def count_within(
        self, queues: Sequence[str], state: State, span: Span, groups: Sequence[FailureGroup] | None = None
    ) -> int:
        """Return how many jobs `listed` would return in all for this span, by an index.  Raises ValueError as it does.

        Of groups, the index is read between the two times: 0.1 s or so for a million jobs, in parts."""

    @abstractmethod
    def count_bars(
        self, state: State, groups: Sequence[FailureGroup], bars: Bars, *, most: int = 0
    ) -> list[list[int] | None]:
        """Return for each of these groups how many of its jobs have their time of the state in each bar: exact, by an
        index.  Raises ValueError for a state without groups.

        `most`: read no more of the index than about so many jobs need, the smallest groups first; a group for which
        this does not suffice is None.  0 = read all that is needed."""
