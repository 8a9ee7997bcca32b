"""What one child process holds, as far as it knows, and what it does where the store says otherwise.

The two disagree where a request or an answer went astray, and where the store has forgotten its last second (failover,
power cut).  The parent hears at each heartbeat what the store has for each child, and passes it on.  What differs
twice in a row is no call under way, and is looked into:

* claims that this process never heard of go back to their queue, uncounted;
* claims whose end was recorded, and which the store still has, are ended again in the same way;
* of an at-most-once job that may have started, and whose end is not remembered here, nobody knows whether it ran: dead;
* what this process runs and the store has not is left to `LeaseCheck`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from django_jobs.core.attempt import Attempted
from django_jobs.core.values import Attempt, Claim, Claimed, Done
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.execution.settle import settle
from django_jobs.serialization.record import decode
from django_jobs.stores.contract.store import Store

logger = logging.getLogger("django_jobs.worker")

#: Ended attempts that are remembered, the latest, and the bytes of their records and results together: a store that
#: forgets its last seconds must find them here.
MOST_ENDED = 5_000
MOST_BYTES = 4 << 20
#: Claims of which it is remembered that they came here.
MOST_TAKEN = 10_000

#: In the log of an at-most-once job that the store still has as running here, and that does not run.
FORGOTTEN = "The store lost what became of this attempt. It may have run, and it must not run twice."

Batch = tuple[str, int]  # queue, token: the jobs of one claim call


class _Ended(NamedTuple):
    """How some claims of one queue ended: one entry per call, to be made again."""

    claims: Sequence[Claim]
    again: Callable[[Store, Claim], object]
    size: int


class Holding:
    """Kept by all threads of a child."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[Batch, set[str]] = {}
        self._taken: deque[Batch] = deque(maxlen=MOST_TAKEN)
        self._ended: deque[_Ended] = deque()
        self._ended_jobs = self._ended_bytes = 0
        #: the queue of a claim that is under way, and since when.
        self.claiming: tuple[str, float] | None = None

    def claim(self, store: Store, queue: str, *args: Any, **options: Any) -> Claimed:
        """`store.claim`, noted."""
        self.claiming = queue, monotonic()
        try:
            claimed = store.claim(queue, *args, **options)
            if claimed.claims:
                with self._lock:  # all of one call have one token
                    batch = queue, claimed.claims[0].token
                    self._held.setdefault(batch, set()).update(claim.id for claim in claimed.claims)
                    self._taken.append(batch)
            return claimed
        finally:
            self.claiming = None

    def completed(self, done: Sequence[Done]) -> None:
        """`store.complete` was answered."""
        by_id = {one.claim.id: one for one in done}
        size = sum(len(one.claim.record) + len(one.result) for one in done)
        claims = [one.claim for one in done]
        self._end(_Ended(claims, lambda store, claim: store.complete(claim.queue, [by_id[claim.id]]), size))

    def settled(self, attempted: Attempted) -> None:
        """Any other end was recorded."""
        # Without what belongs to the user: it may be large, and is not ours to keep alive.
        bare = attempted._replace(running=None, definition=None, error=None)
        self._end(_Ended([bare.claim], lambda store, claim: settle(store, bare), len(bare.claim.record)))

    def released(self, claims: Sequence[Claim]) -> None:
        """They were handed back."""
        size = sum(len(claim.record) for claim in claims)
        self._end(_Ended(claims, lambda store, claim: store.release(claim.queue, [claim]), size))

    def _end(self, ended: _Ended) -> None:
        with self._lock:
            for claim in ended.claims:
                batch = claim.queue, claim.token
                ids = self._held.get(batch)
                if ids is not None:
                    ids.discard(claim.id)
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
        """How many claims of each batch have not ended."""
        with self._lock:
            return {batch: len(ids) for batch, ids in self._held.items()}

    def ids(self, batch: Batch) -> set[str]:
        """Those of one batch."""
        with self._lock:
            return set(self._held.get(batch, ()))

    def may_have_come(self, batch: Batch) -> bool:
        """Was it claimed here, as far as that is remembered?"""
        with self._lock:
            taken = list(self._taken)
        return batch in taken or (len(taken) == MOST_TAKEN and batch[1] < min(token for _, token in taken))

    def end_of(self, claim: Claim) -> Callable[[Store, Claim], object] | None:
        """The call that ended it, if it is remembered."""
        with self._lock:
            latest_first = list(reversed(self._ended))
        for ended in latest_first:
            for other in ended.claims:
                if (other.id, other.token, other.queue) == (claim.id, claim.token, claim.queue):
                    return ended.again
        return None


class Agreement:
    """Compares what the child knows with what the store told its parent."""

    def __init__(self, store: Store, worker: str, holding: Holding, lost: Callable[[str], None]) -> None:
        """`lost(queue)`: jobs may run here that the store has not, in that queue."""
        self.store, self.worker, self.holding, self.lost = store, worker, holding, lost
        #: what the store had beyond ours at the last heartbeat, with our number; what it had not; and when that was.
        self._surplus: dict[Batch, int] = {}
        self._missing: set[Batch] = set()
        self._told_at = 0.0

    def told(self, held: Mapping[str, Mapping[str, int]], unasked: Iterable[str]) -> None:
        """What the store has: queue → token → claims.  Nothing is known of `unasked` queues."""
        ours = self.holding.sizes()
        theirs = {(queue, int(token)): n for queue, tokens in held.items() for token, n in tokens.items()}
        unknown = set(unasked)
        surplus = {batch: ours.get(batch, 0) for batch, n in theirs.items() if n > ours.get(batch, 0)}
        missing = {batch for batch, n in ours.items() if n > theirs.get(batch, 0) and batch[0] not in unknown}
        # A claim that began before we were told last may be about to tell us of what we do not know.
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
                logger.debug("What %s holds in queue %r is not known yet: %s", self.worker, queue, error)
                continue
            if any(batch[0] == queue for batch in lost):
                self.lost(queue)

    def _look_into(self, queue: str, batches: set[Batch]) -> None:
        before = {batch: self.holding.ids(batch) for batch in batches}
        strange = [
            claim
            for claim in self.store.holdings(queue, self.worker)
            if (batch := (queue, claim.token)) in batches
            # What ends or begins while we ask is under way.
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
                "The store had %d jobs of queue %r running in %s that do not run there: %d were handed back, "
                "the others ended as they had ended before",
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
