"""Tells the store how attempts ended: one verb per outcome."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, HandedOver, Parked, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Attempt, Done, State
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.contract.store import Store

logger = logging.getLogger("django_jobs.worker")


def settle(store: Store, attempted: Attempted) -> Attempted | None:
    """End the attempt in the store.  Returns the attempt as recorded, or None if the claim was lost: then nothing
    changed in the store.

    A job that was asked to stop is recorded as cancelled if it would have been retried, snoozed or parked.

    Raises StoreError.  May be called again with the same attempt after StoreUnavailable.
    """
    claim, outcome = attempted.claim, attempted.outcome
    if ACTIVE:
        crashpoint("ack.before_send" if isinstance(outcome, Succeeded) else "fail.before_send")
    match outcome:
        case Succeeded():
            held = not store.complete(claim.queue, [as_done(attempted)])
        case RetryIn(delay, log):
            state = store.retry(claim, log, delay)
            held = state is not None
            if state is State.CANCELLED:
                attempted = attempted._replace(outcome=Cancelled(log))
        case SnoozeFor() | Parked():
            state = (
                store.park(claim, outcome.knows) if isinstance(outcome, Parked) else store.snooze(claim, outcome.delay)
            )
            held = state is not None
            if state is State.CANCELLED:
                attempted = attempted._replace(outcome=Cancelled(Attempt(claim.attempt, "discarded", 0)))
        case Cancelled(log):
            held = store.discard(claim, log)
        case Dead(log):
            held = store.bury(claim, log)
        case HandedOver(holder, lease):
            # The new holder may already have reported the end: a lost claim is no error.
            store.transfer(claim, holder, lease)
            held = True
    if ACTIVE:
        crashpoint("ack.after_reply" if isinstance(outcome, Succeeded) else "fail.after_reply")
    if not held:
        report_stale(attempted)
        return None
    return attempted


def settle_successes(store: Store, queue: str, attempts: Sequence[Attempted], done: Sequence[Done]) -> list[Attempted]:
    """End many successful attempts of one queue in one call.  Returns those whose claims were still held.

    `done`: the same attempts in the form that `Store.complete` takes.  Raises StoreError."""
    if ACTIVE:
        crashpoint("ack.before_send")
    stale = store.complete(queue, done)
    if ACTIVE:
        crashpoint("ack.after_reply")
    if not stale:
        return list(attempts)
    lost = set(stale)
    for attempted in attempts:
        if attempted.claim.id in lost:
            report_stale(attempted)
    return [attempted for attempted in attempts if attempted.claim.id not in lost]


def as_done(attempted: Attempted) -> Done:
    """Return a successful attempt in the form that `Store.complete` takes."""
    claim, outcome, name, _, _, _, run_ms, wait_ms, controls = attempted
    # The two clocks may differ, and a waiting time must not be negative.
    return Done(claim, outcome.result, run_ms, name, controls, max(0, wait_ms))  # type: ignore[union-attr]


def report_stale(attempted: Attempted) -> None:
    """Log that an attempt ended after its claim was lost: its end is not recorded, and the job runs elsewhere."""
    claim = attempted.claim
    logger.warning(
        "Job %s (%s, queue %s) ended after its claim was lost (token %d): the lease expired or a user moved it. "
        "Its end was not recorded.",
        claim.id,
        attempted.name,
        claim.queue,
        claim.token,
        extra={"job_id": claim.id, "job_name": attempted.name, "job_queue": claim.queue, "job_attempt": claim.attempt},
    )
