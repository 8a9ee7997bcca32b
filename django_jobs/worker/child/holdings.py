"""The claims that one child process knows it holds, and what it does where the store says otherwise.

The two differ if a request or an answer was lost, or if the store has lost its last second (failover, power cut).
With each heartbeat the parent learns which claims the store has for each child, and passes this on.  A difference seen
once may be a call in progress.  If the claims differ twice in a row, the child acts:

* claims that this process never received are handed back to their queue, uncharged;
* claims that this process has ended, but which the store still has, are ended again in the same way;
* an at-most-once job that may have started, and whose end is not remembered in this process, may have run: it is dead;
* jobs that run in this process without a claim in the store are left to `LeaseCheck`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from django_jobs.core.attempt import Attempted
from django_jobs.core.values import Attempt, Claim, Claimed, Completed
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.execution.settle import settle
from django_jobs.serialization.record import decode
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")

#: How many of the latest ended attempts are remembered, and the total bytes of their records and results: if the store
#: loses its last seconds, the attempts of that time must be known in this process.
MOST_ENDED = 5_000
MOST_BYTES = 4 << 20
#: How many of the latest claim calls are remembered as received by this process.
MOST_TAKEN = 10_000

#: In the log of an at-most-once job that the store still counts as running in this process, but which does not run.
FORGOTTEN = "The store lost the outcome of this attempt. The job may have run, and it must not run twice."

Batch = tuple[str, int]  # queue, token: the jobs of one claim call


class _Ended(NamedTuple):
    """How some claims of one queue ended: one entry per call, so that the call can be repeated."""

    claims: Sequence[Claim]
    again: Callable[[Store, Claim], object]
    size: int


class HeldClaims:
    """The claims of a child.  All its threads update it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[Batch, set[str]] = {}
        self._taken: deque[Batch] = deque(maxlen=MOST_TAKEN)
        self._ended: deque[_Ended] = deque()
        self._ended_jobs = self._ended_bytes = 0
        #: the queue of the claim call in progress, and when it began (monotonic).
        self.claiming: tuple[str, float] | None = None

    def claim(self, store: Store, queue: str, *args: Any, **options: Any) -> Claimed:
        """Call `store.claim`, and remember its claims."""
        self.claiming = queue, monotonic()
        try:
            claimed = store.claim(queue, *args, **options)
            if claimed.claims:
                with self._lock:  # all claims of one call have the same token
                    batch = queue, claimed.claims[0].token
                    self._held.setdefault(batch, set()).update([claim.id for claim in claimed.claims])
                    self._taken.append(batch)
            return claimed
        finally:
            self.claiming = None

    def completed(self, done: Sequence[Completed]) -> None:
        """Remember that `store.complete` was answered."""

        def again(store: Store, claim: Claim) -> object:
            return store.complete(claim.queue, [one for one in done if one.claim.id == claim.id])

        size = sum([len(one.claim.record) + len(one.result) for one in done])
        self._end(_Ended([one.claim for one in done], again, size))

    def settled(self, attempts: Sequence[Attempted]) -> None:
        """Remember attempts that ended in another way."""
        # Without the user's objects: they may be large, and we must not keep them alive.
        bare = {each.claim.id: each._replace(running=None, definition=None, error=None) for each in attempts}
        claims = [each.claim for each in attempts]
        size = sum(len(claim.record) for claim in claims)
        self._end(_Ended(claims, lambda store, claim: settle(store, bare[claim.id]), size))

    def released(self, claims: Sequence[Claim]) -> None:
        """Remember that these claims were handed back."""
        size = sum(len(claim.record) for claim in claims)
        self._end(_Ended(claims, lambda store, claim: store.release(claim.queue, [claim]), size))

    def _end(self, ended: _Ended) -> None:
        with self._lock:
            batches = {(claim.queue, claim.token) for claim in ended.claims}
            for batch in batches:
                ids = self._held.get(batch)
                if ids is None:
                    continue
                one = len(batches) == 1
                ids.difference_update([c.id for c in ended.claims if one or (c.queue, c.token) == batch])
                if not ids:
                    del self._held[batch]
            self._ended.append(ended)
            self._ended_jobs += len(ended.claims)
            self._ended_bytes += ended.size
            while self._ended_jobs > MOST_ENDED or self._ended_bytes > MOST_BYTES:
                oldest = self._ended.popleft()
                self._ended_jobs -= len(oldest.claims)
                self._ended_bytes -= oldest.size

    def sizes(self) -> dict[Batch, int]:
        """Return how many claims of each batch have not ended."""
        with self._lock:
            return {batch: len(ids) for batch, ids in self._held.items()}

    def ids(self, batch: Batch) -> set[str]:
        """Return the ids of the jobs of one batch that have not ended."""
        with self._lock:
            return set(self._held.get(batch, ()))

    def may_have_come(self, batch: Batch) -> bool:
        """Was it claimed by this process?  True also if it is too old to be remembered."""
        with self._lock:
            taken = list(self._taken)
        return batch in taken or (len(taken) == MOST_TAKEN and batch[1] < min(token for _, token in taken))

    def end_of(self, claim: Claim) -> Callable[[Store, Claim], object] | None:
        """Return the call that ended it; None if it is not remembered."""
        with self._lock:
            latest_first = list(reversed(self._ended))
        for ended in latest_first:
            for other in ended.claims:
                if (other.id, other.token, other.queue) == (claim.id, claim.token, claim.queue):
                    return ended.again
        return None


class ClaimComparison:
    """Compares the claims that the child knows with those that the store told its parent."""

    def __init__(self, store: Store, worker: str, holding: HeldClaims, lost: Callable[[str], None]) -> None:
        """`lost(queue)` is called if jobs of that queue may run in this process without a claim in the store."""
        self.store, self.worker, self.holding, self.lost = store, worker, holding, lost
        #: at the last heartbeat: batches with more claims in the store than here, with the number here; batches with
        #: fewer; and when that was (monotonic).
        self._surplus: dict[Batch, int] = {}
        self._missing: set[Batch] = set()
        self._told_at = 0.0

    def compare(self, held: Mapping[str, Mapping[str, int]], unasked: Iterable[str]) -> None:
        """Compare with what the store has (queue → token → number of claims).  `unasked` queues could not be read."""
        ours = self.holding.sizes()
        theirs = {(queue, int(token)): n for queue, tokens in held.items() for token, n in tokens.items()}
        unknown = set(unasked)
        surplus = {batch: ours.get(batch, 0) for batch, n in theirs.items() if n > ours.get(batch, 0)}
        missing = {batch for batch, n in ours.items() if n > theirs.get(batch, 0) and batch[0] not in unknown}
        # A claim call that began before the last comparison may still bring claims that we do not know yet.
        claiming = self.holding.claiming
        in_flight = claiming[0] if claiming is not None and claiming[1] <= self._told_at else None
        confirmed = {
            batch
            for batch in surplus.keys() & self._surplus.keys()
            if theirs[batch] > self._surplus[batch] and (batch in ours or batch[0] != in_flight)
        }
        lost = missing & self._missing
        self._surplus, self._missing, self._told_at = surplus, missing, monotonic()
        for queue in {batch[0] for batch in confirmed | lost}:
            try:
                self._look_into(queue, {batch for batch in confirmed if batch[0] == queue})
            except StoreError as error:
                logger.debug("The jobs that %s holds in queue %r are not known yet: %s", self.worker, queue, error)
                continue
            if any(batch[0] == queue for batch in lost):
                self.lost(queue)

    def _look_into(self, queue: str, batches: set[Batch]) -> None:
        before = {batch: self.holding.ids(batch) for batch in batches}
        strange = [
            claim
            for claim in self.store.holdings(queue, self.worker)
            if (batch := (queue, claim.token)) in batches
            # Jobs that begin or end while we ask are not a difference.
            and claim.id not in before[batch]
            and claim.id not in self.holding.ids(batch)
        ]
        back: list[Claim] = []
        for claim in strange:
            again = self.holding.end_of(claim)
            if again is not None:
                again(self.store, claim)
            elif self.holding.may_have_come((queue, claim.token)) and _must_not_run_twice(claim):
                log = Attempt(claim.attempt, "worker_lost", 0, worker=self.worker, error=FORGOTTEN)
                self.store.bury(claim, log)
            else:
                back.append(claim)
        if back:
            self.store.release(queue, back)
        if strange:
            logger.warning(
                "Jobs that the store lists as running but that do not run: %d of queue %r in %s. Handed back: %d. "
                "The others keep the end that was recorded",
                len(strange),
                queue,
                self.worker,
                len(back),
            )


def _must_not_run_twice(claim: Claim) -> bool:
    try:
        return decode(claim.id, claim.queue, claim.record).controls.at_most_once
    except CorruptRecord:
        return False
