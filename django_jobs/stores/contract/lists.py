"""The part of the store contract for lists over several queues and for groups of failed jobs.  It only reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from django_jobs.core.values import JobInfo, State


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
    ) -> tuple[list[JobInfo], Mark | None]:
        """Return at most `limit` jobs in one state, of all these queues together, each as in `page`, and where the list
        goes on (None: these were the last).

        Sorted by the time of the state; queued jobs by priority, then arrival; blocked jobs in any stable order.
        `groups`: only jobs of these groups.  A job that stays where it is is returned exactly once, whatever comes and
        goes between the calls.  Raises ValueError for a mark that does not belong to this list."""
