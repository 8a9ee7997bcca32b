"""The part of the store contract that enqueueing and workers use: every method is one atomic move.

Rules for all of them, kept by every store and checked by tests/contract:

* times are integer milliseconds of the *store's* clock, durations too;
* a call that ends or extends an attempt presents the claim's token; when the claim is no longer held, nothing at all
  is changed and the answer says so;
* a call may be sent twice (a lost reply is re-sent): the second has no effect and gives the same answer;
* nothing is dropped because it cannot be read;
* one call touches one queue only.

Errors: StoreUnavailable, StoreFull (enqueue only), StoreCorrupt, StoreMisconfigured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from django_jobs.core.values import (
    Added,
    Attempt,
    Claim,
    Claimed,
    Done,
    JobInfo,
    Lane,
    NewJob,
    Recovered,
    State,
)
from django_jobs.exceptions import StoreError
from django_jobs.stores.contract.batches import MAX_BATCH as MAX_BATCH

#: In the log of a job that may run at most once and that `reconcile` found in no place.
MISPLACED = Attempt(
    0, "misplaced", 0, error="The store had lost its place. Whether it has run is not known, and it must not run twice."
)


class Renewal(NamedTuple):
    """Answer of `Store.renew` for one holder."""

    #: ids of its jobs that were asked to stop, as `Store.extend` tells them.
    asked: Sequence[str]
    #: token → how many claims of it the holder has.
    holds: Mapping[int, int]


class Outlook(NamedTuple):
    """What a look round found in one queue."""

    #: jobs that wait in that lane; 0 where the queue is paused.
    left: int
    #: ms until a claim may find more than that (≥ 0): as Claimed.next_due; 0 where jobs wait for a pause that is over.
    due: int | None


class RunningStore(ABC):
    """How jobs come in, run and end."""

    @abstractmethod
    def enqueue(self, queue: str, jobs: Sequence[NewJob], *, max_length: int = 0) -> list[Added]:
        """→ queued or scheduled.  One answer per job, in order; at most MAX_BATCH jobs.

        With `max_length`, when queued + blocked + the jobs of this call that would be queued exceed it, each of
        those is FULL and none of them is added.  What adds nothing takes no room, nor do jobs of a later time.
        Lane `alone` is taken where controls.alone or at_most_once.
        A unique job whose key is held by a job that still covers it is DUPLICATE ("skip", "raise") or REPLACED
        ("replace": new arguments, if the holder still waits; "debounce": and the new run time); a lock whose
        holder is gone or no longer covered is taken over.  The same id is EXISTS, unless the stored record is
        byte for byte the one sent: then this is a re-send and the answer is ADDED again.
        """

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
    ) -> Claimed:
        """queued → running: up to `limit` jobs, best priority first, oldest first among equals; fewer where their
        records together reach MAX_BYTES.

        Due scheduled and retry jobs are promoted first (at most 100).  Empty while the queue is paused.
        `max_running` bounds the running jobs of the whole queue.  A job over its own limit, or of a paused type,
        goes to blocked and is passed over; an expired one goes to expired and is reported.  The lane `alone` gives its
        suspects first (see recover), the lane `clear` is the same without them.  `worker` holds a lease
        of `lease` ms from now for all its claims in the queue; with `lease_each`, each job is held by its own
        holder `{worker}:{job id}` (remote workers).  Unique locks of mode "queued" are freed.
        Wakes another waiter when jobs are left.

        With `up_to` (see `last_arrival`) only jobs that had arrived by then, and `left` counts no others (it may stop
        at a thousand).  What a worker hands back, or held when it was lost, counts as having arrived.

        `knows` is a digest of what this worker knows (registry.digest).  Jobs of names that `park` has learnt to be
        unknown to workers of that digest go to blocked and are passed over; jobs that are parked and may be known to
        this worker come back first.  With "" the worker takes any name, and nothing that is parked.
        """

    @abstractmethod
    def last_arrival(self, queue: str) -> int:
        """Promote everything that is due, then return the number of the last job that became queued."""

    @abstractmethod
    def waiting(self, queue: str, up_to: int) -> int:
        """How many jobs are queued, in both lanes, that `claim` would take with this `up_to`; 0 while the queue is
        paused.  It may stop counting at a thousand."""

    @abstractmethod
    def is_replicated(self, claim: Claim, replicas: int, timeout: int) -> bool:
        """Is the claim held, and has that reached so many replicas of the server within `timeout` ms?  A store in one
        file has none that could take over, and waits for nobody."""

    @abstractmethod
    def extend(self, queue: str, workers: Sequence[str], lease: int) -> Mapping[str, Sequence[str]]:
        """Renew the leases of these workers.  Returns holder → ids of its jobs that were asked to stop, for
        each worker that still had a lease (even if none of its jobs was asked); a worker that is missing holds
        nothing here any more.  An id that is `Killed` is told again and again until that attempt has ended: until
        it is settled (which is refused), or its holder is recovered, released or without a lease."""

    @abstractmethod
    def renew(
        self, queues: Sequence[str], workers: Sequence[str], lease: int
    ) -> Mapping[str, Mapping[str, Renewal] | StoreError]:
        """`extend` in several queues, in as few round trips as the store can; the heartbeat of a worker.

        Returns queue → holder → what was asked of it and what it holds.  A queue that cannot be read has the error for
        an answer; the others are renewed.  Raises StoreUnavailable, after which any of them may have been renewed."""

    #: queues that one call of `renew` takes in a bounded time.
    renewed_at_once = 100

    @abstractmethod
    def holdings(self, queue: str, worker: str) -> list[Claim]:
        """All claims of this holder.  The call may cost as much as there are running jobs, so it is made where `renew`
        tells of claims that the holder does not know, or not of some that it has."""

    def server_of(self, queue: str) -> str:
        """Which server has the queue, where there are several: if it is silent in one queue, it is in all of its."""
        return ""

    @abstractmethod
    def complete(self, queue: str, done: Sequence[Done]) -> list[str]:
        """running → succeeded, at most MAX_BATCH.  Returns the ids whose claim was stale."""

    @abstractmethod
    def retry(self, claim: Claim, attempt: Attempt, delay: int) -> State | None:
        """running → retry, due in `delay` ms; failures + 1; the attempt is logged.

        CANCELLED instead of RETRY if the job was asked to stop.  None: stale.  A "queued" unique lock is taken
        again if it is free."""

    @abstractmethod
    def park(self, claim: Claim, knows: str) -> State | None:
        """running → blocked, not counted, at the front of its priority: no worker of the digest `knows` knows the job's
        name, or the format of its record.  It comes back where a worker with another digest claims, and waits for one
        as long as it takes; JobInfo.parked_at says since when.

        CANCELLED instead of BLOCKED if the job was asked to stop.  None: stale."""

    @abstractmethod
    def snooze(self, claim: Claim, delay: int) -> State | None:
        """running → scheduled, due in `delay` ms, not a failure.

        CANCELLED instead of SCHEDULED if the job was asked to stop.  None: stale."""

    @abstractmethod
    def bury(self, claim: Claim, attempt: Attempt) -> bool:
        """running → dead; failures + 1 unless the outcome is "worker_lost".  False: stale."""

    @abstractmethod
    def discard(self, claim: Claim, attempt: Attempt) -> bool:
        """running → cancelled, with the attempt as the reason.  False: stale."""

    @abstractmethod
    def release(self, queue: str, claims: Sequence[Claim]) -> list[str]:
        """running → queued, at the front of their priority in this order, not counted: for claims that were not run
        to an end by a worker that stops.  Returns the stale ids."""

    @abstractmethod
    def release_worker(self, queue: str, worker: str, *, limit: int = 100) -> list[Recovered]:
        """running → queued, not counted: everything `worker` holds, after its parent ended it at the end of a drain.

        Like `release`, without the claims in hand (the process that knew them is dead).  A job delivered at most once
        may have started, so it goes to dead with an attempt "worker_lost" instead; one that was asked to stop is
        cancelled.  Returns what moved, at most `limit`: call again until fewer come back; then the holder's lease is
        gone too."""

    @abstractmethod
    def recover(self, queue: str, *, worker: str | None = None, limit: int = 100) -> list[Recovered]:
        """Take the claims of lost workers: of `worker` at once (its parent saw it die), else of every worker whose
        lease has expired.  Each job's crashes + 1, with an attempt "worker_lost" in its log; then it goes to the
        lane `alone`, or to dead when that was crash number `max_crashes` or it is delivered at most once, or to
        cancelled if it was asked to stop.  Holders whose name starts with "remote:" are not touched (see overdue).
        At most `limit`; call again until fewer come back.

        A job of a worker whose lease has expired becomes a suspect, until it ends: all its processes are gone, and any
        job that it held may have been the reason.  Its claims say so.
        """

    @abstractmethod
    def overdue(self, queue: str, limit: int = 100) -> list[Claim]:
        """The claims of holders "remote:…" whose lease has expired: their attempt failed; settle them like any."""

    @abstractmethod
    def transfer(self, claim: Claim, worker: str, lease: int) -> bool:
        """Give the claim (same token) to another holder with its own lease; if the job was asked to stop, that one is
        told.  False: stale."""

    @abstractmethod
    def checkin(self, claim: Claim, checkin: bytes) -> bool:
        """Remember the JSON text of the last check-in while the job runs.  False: stale.  True while asked to
        stop, too: that is told by extend."""

    @abstractmethod
    def promote(self, queue: str, limit: int = 100) -> int:
        """scheduled and retry → queued, those that are due, earliest first.  Returns how many."""

    @abstractmethod
    def wait_for_work(
        self, queues: Sequence[str], timeout: float, *, lane: Lane = Lane.SHARED, passed_over: Collection[str] = ()
    ) -> str | None:
        """Block up to `timeout` seconds until there may be something to claim.

        That parked jobs wait in one of the queues `passed_over` is not told: this worker has just looked at them.

        Returns the queue to look into, "" where that is not known (look into all), None when the time is over.

        Never relied upon: workers look at least every 2 s whatever this says."""

    @abstractmethod
    def backlog(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, int]:
        """How many jobs wait in that lane, per queue: one round trip."""

    @abstractmethod
    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        """Where a claim may find something, now or later: the look round behind wait_for_work.  One round trip."""

    @abstractmethod
    def wake(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> None:
        """Somebody who waits for work shall look into these queues: the caller was told to, and will not."""

    @abstractmethod
    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        """Forget what HISTORY and DEAD no longer keep.  Returns state → how many were forgotten (≤ limit each)."""

    @abstractmethod
    def reconcile(
        self, queue: str, limit: int = MAX_BATCH, *, buried: list[tuple[str, bytes]] | None = None
    ) -> dict[str, int]:
        """Repair what no transition should leave: one bounded step of a round.  Returns kind → repairs.

        Kinds: "claim_without_lease", "lease_without_claim", "job_without_place", "place_without_job",
        "lock_without_job", "slot_without_claim", "waiter_without_limit", "wrong_type",
        "entry_without_job" (its log, its counts, its result).  A job in no place is queued
        again; delivered at most once, it may have started, so it goes to dead with the attempt MISPLACED.  A job in
        several places counts as "job_without_place": it stays in one.

        Each step goes on where the last one of this store ended: steps of `limit` meet everything in time.  Where the
        numbers of jobs show that one is misplaced, all are walked through, for a quarter of a second in each step.
        `buried` is added to: id and record of each job that went to dead."""

    def is_walking(self, queue: str) -> bool:
        """Has a step of `reconcile` begun to walk through the whole queue, and not ended?  The next step should follow
        soon.  A store that knows the place of each job by an index has no need to."""
        return False

    @abstractmethod
    def archive_batch(self, queue: str, limit: int = MAX_BATCH) -> list[tuple[int | str, JobInfo]]:
        """With `StoreOptions.archive`: jobs that finished and wait for the archiver, oldest first, each with its key;
        fewer than `limit` where they together reach MAX_BYTES.

        They are only looked at; `archive_done` removes them.  Each info has state, end, result and attempts as they
        were then; a job that finished again after a revival comes again."""

    @abstractmethod
    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        """Remove what `archive_batch` gave and the archiver has written.  Keys that are gone are left alone."""

    def locked_by(self) -> int:
        """The process that keeps all others from writing at this moment; 0 = there is none, or that is not known."""
        return 0

    def abandon(self) -> None:  # noqa: B027  (most have nothing to do)
        """In a copy of the process that a job has made: let go of sockets, without a word and without any lock."""

    @abstractmethod
    def close(self) -> None:
        """Close this process's connections; the next call opens new ones."""
