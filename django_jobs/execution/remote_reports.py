"""How the attempts of remote jobs end: by a report over HTTP, or because no report came in time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django_jobs.core import registry
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Succeeded, clean
from django_jobs.core.values import Claim
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import CorruptRecord, Fail, JobsError
from django_jobs.execution.settle import (
    advance,
    after_ends,
    as_done,
    batches_of_others,
    end,
    failed_elsewhere,
    settle_others,
    settle_successes,
)
from django_jobs.runtime.refusals import Refusals
from django_jobs.serialization.holders import is_unconfirmed
from django_jobs.serialization.masking import scrub_for
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import dump_result
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import in_batches

logger = logging.getLogger("django_jobs.remote")

#: Bytes kept of the error text in a report.
MAX_ERROR = 2048
#: ms in which no attempt is overdue after the store's clock was set forward: remote workers choose their leases.
SPARED = 600_000


class RemoteFailure(JobsError):
    """A remote worker reported that the attempt failed."""


class PermanentRemoteFailure(Fail):
    """A remote worker reported a failure that no other attempt would mend."""


class NoReport(JobsError):
    """No report came within the time limit of the remote job type."""


def succeed(store: Store, claim: Claim, result: Any = None) -> bool:
    """Record that a remote attempt succeeded.  False: the claim was lost, and nothing changed.

    A `result` that cannot be stored is logged, and the job succeeds.  Raises StoreError."""
    return end(store, _succeeded(claim, result, _held(claim, store.now())), deliver_here) is not None


def succeed_many(store: Store, queue: str, ends: Sequence[tuple[Claim, Any]]) -> set[str]:
    """Do `succeed` for claims of one queue and their results, with one call to the store for each batch.

    Returns the ids of lost claims.  Raises StoreError."""
    if not ends:
        return set()
    now = store.now()
    attempts = [_succeeded(claim, result, _held(claim, now)) for claim, result in ends]
    lost = {claim.id for claim, _ in ends}
    for batch in in_batches([(each, as_done(each)) for each in attempts], lambda pair: len(pair[1].result)):
        recorded = settle_successes(store, queue, [each for each, _ in batch], [done for _, done in batch])
        lost.difference_update(each.claim.id for each in recorded)
        after_ends(store, queue, recorded, deliver_here)
    return lost


def _succeeded(claim: Claim, result: Any, run_ms: int) -> Attempted:
    stored, why = dump_result(result)
    name = name_of(claim.record)
    if why:
        logger.warning("The result of job %s (%s) is not kept. %s", claim.id, name, why)
    attempted = Attempted(claim, Succeeded(stored), name, definition=registry.known(name), run_ms=run_ms)
    try:
        job = decode(claim.id, claim.queue, claim.record)
        return attempted._replace(controls=job.controls, wait_ms=claim.waited(job))
    except CorruptRecord as problem:
        logger.warning("%s", problem)
        return attempted


def fail(store: Store, claim: Claim, error: str, *, retryable: bool = True) -> bool:
    """Record that a remote attempt failed.  It is retried like other jobs if `retryable`.  False: the claim was lost.

    Raises StoreError."""
    return not fail_many(store, claim.queue, [(claim, error, retryable)])


def fail_many(store: Store, queue: str, ends: Sequence[tuple[Claim, str, bool]]) -> set[str]:
    """Do `fail` for claims of one queue, each with its error and whether it is `retryable`, with one call to the store
    for each batch.

    Returns the ids of lost claims.  Raises StoreError."""
    return _end_many(store, queue, [(claim, _reported(claim, error, again)) for claim, error, again in ends], "failed")


def _reported(claim: Claim, error: str, retryable: bool) -> JobsError:
    message = clean(_scrubbed(claim, error) or "The worker gave no reason.", MAX_ERROR)
    return (RemoteFailure if retryable else PermanentRemoteFailure)(message)


def _scrubbed(claim: Claim, error: str) -> str:
    """Return what the worker said, without the values of the job's sensitive arguments."""
    try:
        scrub = scrub_for(decode(claim.id, claim.queue, claim.record))
    except CorruptRecord:
        return error
    return scrub(error) if scrub else error


def _end_many(store: Store, queue: str, ends: Sequence[tuple[Claim, JobsError]], kind: str) -> set[str]:
    if not ends:
        return set()
    now = store.now()
    attempts = [failed_elsewhere(claim, error, kind, now, _held(claim, now)) for claim, error in ends]
    lost = {claim.id for claim, _ in ends}
    for batch in batches_of_others(attempts):
        recorded = settle_others(store, queue, batch)
        lost.difference_update(each.claim.id for each in recorded)
        after_ends(store, queue, recorded, deliver_here)
    return lost


def _held(claim: Claim, now: int) -> int:
    """Return for how long the claim has been held (ms; -1 = not known)."""
    return max(0, now - claim.claimed_at) if claim.claimed_at else -1


def over(store: Store, queue: str, id: str, token: int | None) -> None:
    """Note that an attempt which was killed has ended, as its worker says: what it held is free, and its batch goes on.

    `token`: None = that of the last attempt which was killed.  Does nothing for other attempts.  Raises StoreError."""
    # No claim is of this time: one that is held is not handed back.
    store.release(queue, [Claim(id, queue, token or 0, b"", claimed_at=1)])
    advance(store, queue)


class RemoteWatch:
    """A maintenance task: attempts without a report in time fail.  Several workers may run it for the same queues."""

    def __init__(self, store: Store, queues: Callable[[], Iterable[str]]) -> None:
        self.store, self.queues = store, queues

    def tick(self) -> int:
        """Fail the attempts that are overdue now, and give back unconfirmed claims, at most 100 per queue.  Returns how
        many it ended."""
        failed, refusals = 0, Refusals()
        for queue in self.queues():
            with refusals.put_off():
                failed += self._look_into(queue)
        refusals.raise_last()
        return failed

    def _look_into(self, queue: str) -> int:
        failed, silent = 0, list[Claim]()
        for claim in self.store.overdue(queue, spare=SPARED):
            if is_unconfirmed(claim.worker):
                failed += not self.store.release(queue, [claim])
            else:
                silent.append(claim)
        lost = _end_many(self.store, queue, [(claim, NoReport()) for claim in silent], "timeout")
        return failed + len(silent) - len(lost)
