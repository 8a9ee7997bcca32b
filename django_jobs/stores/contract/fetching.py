"""The part of the store contract by which free workers find the queues to claim from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple

from django_jobs.core.values import Lane

#: Seconds that a worker waits for work at most: a lost wake-up delays a job by no more than this.  Whoever waits for
#: less knows of something that is due then, and the store ends that wait on time.
LONGEST_WAIT = 2.0


class Outlook(NamedTuple):
    """What `outlook` found in one queue."""

    #: jobs that wait in that lane; 0 while the queue is paused.
    left: int
    #: ms until a claim may find more than that (≥ 0), as Claimed.next_due; 0 if jobs wait for a pause that is over.
    due: int | None


class FetchingStore(ABC):
    """How a free worker waits for jobs, and looks where there are some."""

    @abstractmethod
    def last_arrival(self, queue: str) -> int:
        """Promote all jobs that are due, then return the number of the job that became queued last."""

    @abstractmethod
    def waiting(self, queue: str, up_to: int) -> int:
        """Count the queued jobs, in both lanes, that `claim` would take with this `up_to`; 0 while the queue is
        paused.  It may stop counting at a thousand."""

    @abstractmethod
    def promote(self, queue: str, limit: int = 100) -> int:
        """scheduled and retry → queued, for jobs that are due, earliest first.  Returns how many moved."""

    @abstractmethod
    def wait_for_work(
        self,
        queues: Sequence[str],
        timeout: float,
        *,
        lane: Lane | None = Lane.SHARED,
        passed_over: Collection[str] = (),
    ) -> str | None:
        """Block up to `timeout` seconds until there may be a job to claim in this lane; None: in any lane.

        Parked jobs in the queues `passed_over` do not end the wait: this worker has just looked at them.

        Returns the queue to look into, "" if that is not known (look into all), None when the time is over.

        Workers must not rely on it: they check their queues at least every LONGEST_WAIT in any case."""

    @abstractmethod
    def backlog(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, int]:
        """Count the jobs that wait in that lane, per queue, in one round trip."""

    @abstractmethod
    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        """Tell where a claim may find jobs, now or later (wait_for_work is built on this).  One round trip."""

    @abstractmethod
    def wake(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> None:
        """Wake another waiting worker for these queues: the caller was woken for them and will not look."""
