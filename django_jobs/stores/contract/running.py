"""The part of the store contract that enqueueing and workers use: every method is one atomic transition.

Rules for all methods, kept by every store and checked by tests/contract:

* times are integer milliseconds of the *store's* clock; durations are integer milliseconds;
* a call that ends or extends an attempt presents the claim's token; when the claim is no longer held (it is "stale"),
  the call changes nothing and its answer says so;
* a call may be sent twice (the client repeats it when the reply was lost): the second call has no effect and gives the
  same answer;
* no job is dropped because it cannot be read;
* one call touches one queue only, except the calls that take `queues`.

Errors: StoreUnavailable, StoreFull (from calls that need room: above all enqueue), StoreCorrupt, StoreMisconfigured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from django_jobs.core.values import (
    Added,
    Attempt,
    Claim,
    Claimed,
    Completion,
    Done,
    Ended,
    Lane,
    NewJob,
    Recovered,
    State,
)
from django_jobs.exceptions import StoreError
from django_jobs.stores.contract.batches import MAX_BATCH as MAX_BATCH


class Renewal(NamedTuple):
    """The answer of `Store.renew` for one holder."""

    #: ids of its jobs that were asked to stop, as `renew` describes.
    asked: Sequence[str]
    #: token → the number of claims that the holder has under it.
    holds: Mapping[int, int]


class RunningStore(ABC):
    """How jobs are enqueued, run and end."""

    @abstractmethod
    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0) -> list[Added]:
        """→ queued or scheduled.  One answer per job, in order.  Raises ValueError for more than MAX_BATCH jobs.

        With `max_length`: when queued + blocked + the jobs of this call that would be queued exceed it, each of these
        jobs is FULL and none of them is added.  A job that is not added needs no free place; neither does a job for a
        later time.  A job goes to lane `alone` if controls.alone or at_most_once is set.  If another job holds the
        unique key and is still covered by it, the new job is DUPLICATE ("skip", "raise") or REPLACED: "replace" gives
        the waiting holder the new arguments, "debounce" also the new run time.  If the holder is gone or no longer
        covered, the new job takes over the lock.  An id that is already there is EXISTS, unless the stored record is
        byte for byte the one sent: then the call was repeated, and the answer is ADDED again."""

    def enqueue_ahead(self, queue: str, jobs: Sequence[NewJob]) -> Callable[[], list[Added]]:
        """Begin `enqueue`, and return a function that waits for its answers: meanwhile, the caller can make the next
        jobs.  Call it once.  Each of the two raises what `enqueue` raises; then the jobs may be stored, or be stored
        later."""
        answers = self.enqueue(queue, jobs)
        return lambda: answers

    @abstractmethod
    def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        *,
        lane: Lane = Lane.SHARED,
        lease: int,
        max_running: int = 0,
        lease_each: bool = False,
        up_to: int | None = None,
        knows: str = "",
        names: Collection[str] = (),
        rank: int = 0,
        request: str = "",
        completion: Completion | None = None,
    ) -> Claimed:
        """queued → running: up to `limit` jobs, best priority first, oldest first within a priority; fewer if their
        records together reach MAX_BYTES.

        Due scheduled and retry jobs are promoted first (at most 100).  Returns no jobs while the queue is paused.
        `max_running` bounds the running jobs of the whole queue.  A job over its own limit, or of a paused type, goes
        to blocked and is passed over; an expired one goes to expired and is reported.  The lane `alone` gives its
        suspects first (see recover); the claim of a suspect whose next crash would be its last `has_to_wait` (see
        begin), except with `lease_each`.  The lane `clear` is `alone` without suspects.  From both, an at-most-once job
        and a job that crashed are claimed one by one, except with `lease_each`: if the process dies, each of its jobs
        may have started, and any of them may have been the reason.  `worker` holds one lease of
        `lease` ms from now for all its claims in the queue; with `lease_each`, each job has its own holder
        `{worker}:{job id}` (remote workers).  Unique locks of mode "queued" are freed.  If jobs are left, another
        waiting worker is woken.

        With `up_to` (see `last_arrival`), only jobs that had arrived by then are claimed and counted in `left` (which
        may stop counting at a thousand).  A job that a worker handed back, or held when it was lost, counts as having
        arrived.

        `knows` is a digest of the names and formats that this worker knows (registry.digest).  If `park` has recorded
        that workers of that digest do not know a job's name, the job goes to blocked and is passed over; parked jobs
        that this worker may know come back first.  With "", the worker takes jobs of any name, but no parked ones.

        With `names`, only jobs of these names are taken, wherever they stand in the lane; the others stay where they
        are, and none of their expiries or limits are looked at.  A call looks at some hundred jobs, from `rank` on;
        Claimed.rank is where the next call continues.

        `request` is an id of the caller's for this call: if a claim with it has returned jobs in the last quarter of an
        hour, those of them that are still held are returned again, with a new lease, and no others are taken.

        `completion`: first do `complete` for these attempts, in the same round trip if both queues are on one server.
        Its answer is set as `completion.stale`, whether the claim returns or raises.  It stays None if `complete` was
        refused or not answered: call `complete` then, which repeats the call if it may have been carried out."""

    @abstractmethod
    def is_replicated(self, claim: Claim, replicas: int, timeout: int) -> bool:
        """Tell whether the claim is held and has reached `replicas` replicas of the server within `timeout` ms.  A
        store in a file has no replicas that could take over, so it does not wait."""

    @abstractmethod
    def renew(
        self, queues: Sequence[str], workers: Sequence[str], lease: int
    ) -> Mapping[str, Mapping[str, Renewal] | StoreError]:
        """Renew the leases of these workers in these queues for `lease` ms, in as few round trips as the store can: the
        heartbeat of a worker.

        Returns queue → holder → Renewal, for each worker that still had a lease (even if none of its jobs was asked to
        stop); a worker that is missing holds nothing in this queue any more.  An id that is `Killed` is returned by
        every call until that attempt has ended: until it is settled (which is refused), or its holder is recovered or
        released or has no lease.  For a queue that cannot be read, the value is the error; the others are renewed.
        Raises StoreUnavailable; any of the queues may then have been renewed."""

    def extend(self, queue: str, workers: Sequence[str], lease: int) -> Mapping[str, Sequence[str]]:
        """Do `renew` in one queue.  Returns holder → ids of its jobs that were asked to stop.  Raises StoreError."""
        renewed = self.renew([queue], workers, lease)[queue] if workers else {}
        if isinstance(renewed, StoreError):
            raise renewed
        return {worker: renewal.asked for worker, renewal in renewed.items()}

    #: the number of queues that one call of `renew` handles in a bounded time.
    renewed_at_once = 100

    @abstractmethod
    def begin(self, claim: Claim) -> bool:
        """Note that a job whose claim `has_to_wait` begins: from now on, a crash of its worker counts as its last.

        Until then, `recover` gives the job back without counting a crash.  A worker therefore calls this when nothing
        else runs in any of its processes: if it then dies as a whole, this job was the reason.  False if the claim is
        stale.  For other claims it changes nothing."""

    @abstractmethod
    def holdings(self, queue: str, worker: str) -> list[Claim]:
        """Return all claims of this holder.

        This may cost as much as reading all running jobs, so call it only if `renew` reports claims that the holder
        does not know, or lacks claims that it has."""

    def server_of(self, queue: str) -> str:
        """Return which server has the queue, if there are several: a server that does not answer for one queue answers
        for none of its queues."""
        return ""

    @abstractmethod
    def complete(self, queue: str, done: Sequence[Done]) -> list[str]:
        """running → succeeded.  Returns the ids whose claim was stale.  ValueError for more than MAX_BATCH jobs."""

    @abstractmethod
    def settle(self, queue: str, ended: Sequence[Ended]) -> list[State | None]:
        """End attempts of one queue that did not succeed, each as the method named by its `verb` says.

        Returns for each of them the job's new state, or None if the claim is stale.  Either all jobs whose claims are
        held are moved, or the call fails and moves none.  ValueError for more than MAX_BATCH attempts."""

    def retry(self, claim: Claim, attempt: Attempt, delay: int) -> State | None:
        """running → retry, due in `delay` ms; failures + 1; the attempt is logged.

        Returns RETRY, or CANCELLED if the job was asked to stop, or None if the claim is stale.  A unique lock of mode
        "queued" is taken again if it is free."""
        return self.settle(claim.queue, [Ended(claim, "retry", attempt, delay)])[0]

    def park(self, claim: Claim, knows: str) -> State | None:
        """running → blocked, not counted as an attempt, at the front of its priority (several jobs of one call: in
        their order): workers of the digest `knows` do not know the job's name, or the format of its record.  It becomes
        queued again when a worker with another digest claims, however long that takes; JobInfo.parked_at says since
        when it waits.

        Returns BLOCKED, or CANCELLED if the job was asked to stop, or None if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "park", knows=knows)])[0]

    def snooze(self, claim: Claim, delay: int) -> State | None:
        """running → scheduled, due in `delay` ms, not counted as a failure.

        Returns SCHEDULED, or CANCELLED if the job was asked to stop, or None if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "snooze", delay=delay)])[0]

    def bury(self, claim: Claim, attempt: Attempt) -> bool:
        """running → dead; failures + 1 unless the outcome is "worker_lost".  False if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "bury", attempt)])[0] is not None

    def discard(self, claim: Claim, attempt: Attempt) -> bool:
        """running → cancelled, with the attempt as the reason.  False if the claim is stale."""
        return self.settle(claim.queue, [Ended(claim, "discard", attempt)])[0] is not None

    @abstractmethod
    def release(self, queue: str, claims: Sequence[Claim]) -> list[str]:
        """running → queued, at the front of their priority in this order, not counted as attempts: for claims that a
        stopping worker has not finished.  Returns the ids whose claim was stale."""

    @abstractmethod
    def release_worker(self, queue: str, worker: str, *, limit: int = 100) -> list[Recovered]:
        """running → queued, not counted as attempts: all jobs that `worker` holds, after its parent process ended it
        at the end of a drain.

        Like `release`, for a caller that has no list of the claims (the process that knew them is dead).  An
        at-most-once job may have started, so it goes to dead with an attempt "worker_lost"; a job that was asked to
        stop is cancelled.  Returns the jobs that moved, at most `limit`: call again until fewer come back; then the
        holder's lease is removed, too."""

    @abstractmethod
    def recover(self, queue: str, *, worker: str | None = None, limit: int = 100) -> list[Recovered]:
        """Take the claims of lost workers: those of `worker` at once (its parent process saw it die), otherwise those
        of every worker whose lease has expired.

        Each job gets crashes + 1 and an attempt "worker_lost" in its log.  Then it goes to the lane `alone`; to dead
        if that was crash number `max_crashes` or it is an at-most-once job; to cancelled if it was asked to stop.
        Holders whose name starts with "remote:" are not touched (see overdue).  Returns at most `limit` jobs; call
        again until fewer come back.

        A job of a worker whose lease has expired is a suspect until it ends: all processes of that worker are gone,
        and any job that it held may have been the cause.  The job's claims say that it is a suspect.

        Two kinds of jobs go back without a crash and without an entry in the log: those whose claim `has_to_wait` and
        was not begun; and those that were no suspects, and for which this death would be the last crash."""

    @abstractmethod
    def overdue(self, queue: str, limit: int = 100) -> list[Claim]:
        """Return the claims of holders "remote:…" whose lease has expired.  Their attempts failed; settle them
        normally.  The claims have `overdue` set: one that is extended before it is settled has not failed."""

    @abstractmethod
    def transfer(self, claim: Claim, worker: str, lease: int) -> bool:
        """Give the claim (same token) to another holder with its own lease of `lease` ms; if the job was asked to
        stop, the new holder is told.  False if the claim is stale."""

    @abstractmethod
    def checkin(self, claim: Claim, checkin: bytes) -> bool:
        """Store the JSON text of the last check-in while the job runs.  False if the claim is stale.  True even if the
        job was asked to stop: `extend` reports that."""
