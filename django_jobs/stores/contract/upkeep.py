"""The part of the store contract by which maintenance processes and `doctor` keep the store in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from django_jobs.core.values import Attempt, Faults
from django_jobs.stores.contract.batches import MAX_BATCH

#: In the log of an at-most-once job that `reconcile` found in no place.
MISPLACED = Attempt(
    0, "misplaced", 0, error="The store lost the state of this job. The job may have run, and it must not run twice."
)


class UpkeepDue(NamedTuple):
    """What maintenance has to do in one queue."""

    #: there are jobs to delete.
    prune: bool
    #: the sizes of all parts of the queue; "" if it has none.  None: check it, because it is in use.
    sizes: str | None
    #: no sample of its totals has been taken in these five minutes.
    sample: bool = False


class UpkeepStore(ABC):
    """How old jobs are deleted, and how damage is found and repaired."""

    def lapsed(self, queues: Sequence[str]) -> list[str]:
        """Return the queues in which `recover` may find something: a lease has ended.  As few round trips as the store
        can.  Queues of servers that do not answer are left out; raises StoreUnavailable if none answers."""
        return list(queues)

    def upkeep_due(self, queues: Sequence[str]) -> dict[str, UpkeepDue]:
        """Tell what maintenance has to do in these queues; the rest as for `lapsed`."""
        return dict.fromkeys(queues, UpkeepDue(True, None, True))

    @abstractmethod
    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        """Delete the jobs that HISTORY and DEAD no longer keep.  Returns state → number of deleted jobs (≤ limit
        each)."""

    @abstractmethod
    def sample(self, queues: Sequence[str]) -> None:
        """Take a sample of the totals of each of these queues that had none in these five minutes (samples/log.py).

        Of several workers that do this at the same time, one has an effect.  Samples disappear eight days after the
        last was taken.  At most 20 queues."""

    def check_turn(self, queue: str, checker: str, lease: int) -> int:
        """Tell whether this process may call `reconcile` for the queue: 0 if it may, and then no other may for `lease`
        ms; otherwise after how many ms it should ask again.  Where a check costs next to nothing, all may."""
        return 0

    @abstractmethod
    def reconcile(
        self, queue: str, limit: int = MAX_BATCH, *, buried: list[tuple[str, bytes]] | None = None
    ) -> dict[str, int]:
        """Repair what no transition should leave behind: one bounded step of a round.  Returns kind → number of
        repairs.

        Kinds: "claim_without_lease", "lease_without_claim", "job_without_place", "place_without_job",
        "lock_without_job", "slot_without_claim", "waiter_without_limit", "wrong_type", "entry_without_job" (its log,
        its counts, its result), "failed_without_index", "index_without_failed" (after moves by a version that does not
        keep the index of failed jobs).  A job in no place is queued again; an at-most-once job may have started, so it
        goes to dead with the attempt MISPLACED.  A job in several places counts as "job_without_place", stays in one.

        Each step continues where the last step of this store object ended, so that steps of `limit` reach all entries
        eventually.  If the numbers of jobs show that one is misplaced, all jobs are walked through, for a quarter of a
        second in each step.  The id and record of each job that went to dead are appended to `buried`."""

    def is_walking(self, queue: str) -> bool:
        """Tell whether a walk of `reconcile` through the whole queue has begun and not ended; the next step should
        then follow soon.  A store that has an index of each job's place never walks."""
        return False

    @abstractmethod
    def faults(self, queue: str, limit: int = 10_000) -> Faults:
        """Return what `reconcile` would repair, without changing anything.  Expired leases and expired unique periods
        are not reported.  About `limit` entries of each kind are checked, a thousand at a time."""
