"""What the store's methods return, besides the values of a job (core/values.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from django_jobs.core.values import Attempt, JobInfo, State

#: Longest wait of a worker for work, in seconds: a lost wake-up delays a job by no more than this.  A worker waits for
#: less if it knows when the next job is due; the store then ends the wait on time.
LONGEST_WAIT = 2.0
#: No more jobs than these need be counted before a job, and no more holders of a limit be named.
MOST_AHEAD, MOST_HOLDERS = 10_000, 3
#: In the log of an at-most-once job that `reconcile` found in no place.
MISPLACED = Attempt(
    0, "misplaced", 0, error="The store lost the state of this job. The job may have run, and it must not run twice."
)

#: Gives the job as it is when it has ended; None if it has gone.
End = Future[JobInfo | None]


class Outlook(NamedTuple):
    """What `outlook` found in one queue."""

    #: jobs that wait in that lane; 0 while the queue is paused.
    left: int
    #: ms until a claim may find more than that (≥ 0), as Claimed.next_due; 0 if jobs wait for a pause that is over.
    due: int | None


class Renewal(NamedTuple):
    """The answer of `Store.renew` for one holder."""

    #: ids of its jobs that were asked to stop, as `renew` describes.
    asked: Sequence[str]
    #: token → the number of claims that the holder has under it.
    holds: Mapping[int, int]


class RememberedId(NamedTuple):
    """The entry of an id that must not be used again."""

    #: as in NewJob.
    digest: str
    #: how the job ended; None while the job is in the store.
    state: State | None
    #: ms: when the job ended; while it is in the store, when it was enqueued.
    at: int

    @property
    def is_void(self) -> bool:
        """Was there never a job with this id, and may there be none (`Store.void`)?"""
        return self.digest == "void"


class Move(NamedTuple):
    """A job has left its queue to be retried in another one."""

    #: of its entry in `end_calls`, which is there until the job has arrived.
    key: str
    #: greater than those of the job's earlier moves (leave_for in lib/ends/finish.lua).
    number: int
    queue: str


class ParkedName(NamedTuple):
    """Jobs of one name that wait in a queue for a worker that knows the name."""

    queue: str
    name: str
    jobs: int
    #: digests of the workers that do not know it.
    unknown_to: frozenset[str]


class UpkeepDue(NamedTuple):
    """What maintenance has to do in one queue."""

    #: there are jobs to delete.
    prune: bool
    #: the sizes of all parts of the queue; "" if it has none.  None: check it, because it is in use.
    sizes: str | None
    #: no sample of its totals has been taken in these five minutes.
    sample: bool = False
