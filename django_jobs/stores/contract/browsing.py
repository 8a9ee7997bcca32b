"""The part of the store contract for viewing jobs.  It only reads: a viewer may have no right to write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from django_jobs.core.standing import Standing
from django_jobs.core.values import JobInfo, State

#: No more jobs than these need be counted before a job, and no more holders of a limit be named.
MOST_AHEAD, MOST_HOLDERS = 10_000, 3


class Remembered(NamedTuple):
    """The entry of an id that must not be used again."""

    #: as in NewJob.
    digest: str
    #: how the job ended; None while the job is in the store.
    state: State | None
    #: ms: when the job ended; while it is in the store, when it was enqueued.
    at: int


class BrowsingStore(ABC):
    """The methods for viewing jobs.  Every method costs O(what it returns)."""

    @abstractmethod
    def get(self, queue: str, id: str) -> JobInfo | None:
        """Return all that is known about one job, or None."""

    @abstractmethod
    def find(self, queues: Sequence[str], id: str) -> JobInfo | None:
        """Find a job whose queue is not known: one round trip over all queues, then `get`."""

    @abstractmethod
    def walk(
        self, queue: str, state: State, cursor: str = "", limit: int = 100, *, until: int = 0
    ) -> tuple[list[str], str]:
        """Return at most `limit` ids in one state, and the cursor for the next call ("" = the end).

        A job that stays in this state is returned exactly once, whatever comes and goes between the calls.  With
        `until` (ms), finished jobs that ended later are left out, so that a walk ends even if the jobs that it returns
        finish again.  Raises ValueError for a cursor that does not belong to this walk."""

    def get_many(self, queue: str, ids: Sequence[str]) -> list[JobInfo]:
        """Return the jobs that exist, in the order of `ids`, each as in `page`.  At most MAX_BATCH ids."""
        return [info for id in ids if (info := self.get(queue, id)) is not None]

    @abstractmethod
    def remembered(self, queue: str, id: str) -> Remembered | None:
        """Return the entry of an id that was given with a digest, or None.  It is kept as long as the job is
        in the store, and for `StoreOptions.idempotency` ms after the job's end."""

    @abstractmethod
    def reported(self, queue: str, id: str) -> str:
        """Return `Claim.report` of the last attempt of this job that was ended by a claim with one; "" if it is not
        known.  Known for a quarter of an hour, for at least the last 50,000 jobs of the queue, even if the job has
        left the store."""

    @abstractmethod
    def has_returned_none(self, queue: str, id: str) -> bool:
        """Tell whether this job, which is no longer in the store, succeeded and returned None.  Known for a minute
        after HISTORY removed it, for at least the last 50,000 jobs of the queue."""

    @abstractmethod
    def page(
        self, queue: str, state: State, offset: int = 0, limit: int = 50, *, reverse: bool = False
    ) -> list[JobInfo]:
        """Return a page of jobs in one state: with only the last attempt of each log, at most 1 kB of a result, and
        perhaps without `since`.

        Order: queued in the order they will run (lane shared, then alone); scheduled and retry by due time; running by
        claim time; blocked by key; finished by end time.  `reverse` reverses the order (newest first for finished
        jobs)."""

    @abstractmethod
    def standing(self, queue: str, id: str, limit_key: str | None = None) -> Standing:
        """Return where the job stands among others; `limit_key`: that of its controls.  A queue may change between
        two of the reads, so a caller compares `state` with JobInfo.  At most MOST_AHEAD jobs need be counted."""
