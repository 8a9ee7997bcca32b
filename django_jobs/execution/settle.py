"""How attempts end: what follows a failure, wherever the job ran, and one verb of the store per outcome."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence

from django_jobs.core import registry
from django_jobs.core.attempt import Attempted
from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition, backoff_of
from django_jobs.core.outcome import (
    AnyFailure,
    Cancelled,
    Dead,
    HandedOver,
    Parked,
    Refiled,
    RetryIn,
    SnoozeFor,
    Succeeded,
    after_failure,
    failed_attempt,
)
from django_jobs.core.values import Attempt, Claim, Completed, Ended, Job, State
from django_jobs.events.announce import announce_all
from django_jobs.events.signal_events import Deliver, send
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.serialization.holders import shown
from django_jobs.serialization.masking import scrub_for
from django_jobs.serialization.record import decode, encode, name_of
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_LOG, SETTLED_AT_ONCE, SETTLED_BYTES, in_batches
from django_jobs.workflows import end_calls, engine

logger = logging.getLogger("django_jobs.worker")


def failed(
    claim: Claim,
    error: BaseException,
    job: Job,
    definition: JobDefinition | None,
    log: Attempt,
    running: RunningJob | None = None,
    following: Job | None = None,
) -> Attempted:
    """Return how the attempt ends that failed with `error`: again later, cancelled or dead.

    `log` is the line for the log, made by `failed_attempt`; `definition` None: every option has its default;
    `following`: the job as it is from now on, if `error` changes it (execution/retried.py)."""
    policy = AnyFailure() if definition is None else definition.options
    outcome = after_failure(
        error,
        policy,
        log,
        backoff=backoff_of(job, policy.backoff),
        max_attempts=(following or job).options.max_attempts,
        on_exhausted=job.options.on_exhausted,
        at_most_once=job.controls.at_most_once and not (job.options.retried and log.outcome == "failed"),
        jitter=random.random(),
        earlier=claim.earlier,
    )
    if isinstance(outcome, RetryIn | Cancelled | Dead) and (scrub := scrub_for(job, following)):
        # Its text may have more than the log's: what `backoff` raised.
        outcome = outcome._replace(attempt=outcome.attempt._replace(error=scrub(outcome.attempt.error)))
    if following is not None and isinstance(outcome, RetryIn):
        # A change of the queue alone leaves the record as it is, with what this version does not know of it.
        record = b"" if following == job._replace(queue=following.queue) else encode(following)
        outcome = outcome._replace(record=record, queue="" if following.queue == job.queue else following.queue)
    return Attempted(
        claim,
        outcome,
        job.name,
        running=running,
        definition=definition,
        error=error,
        run_ms=log.run_ms,
        wait_ms=claim.waited(job),
        controls=job.controls,
    )


def failed_elsewhere(
    claim: Claim, error: BaseException, kind: str, now: int, run_ms: int = -1, release: str = ""
) -> Attempted:
    """Return how an attempt ends that failed outside of this process: in a remote worker, or in a child that was ended.

    `kind` is the outcome in the log; `now` is the store's time in ms; `release`: of the code that ran, if known."""
    # A traceback would be that of this process: it says nothing about the failure.
    log = failed_attempt(
        error, number=claim.attempt, at=now, run_ms=run_ms, worker=shown(claim.worker), outcome=kind, release=release
    )._replace(traceback="")
    try:
        job = decode(claim.id, claim.queue, claim.record)
    except CorruptRecord as problem:
        logger.warning("%s", problem)
        name = name_of(claim.record)
        ended = Dead(log._replace(outcome="corrupt"))
        return Attempted(claim, ended, name, definition=registry.known(name), error=error, run_ms=run_ms)
    if kind == "timeout":  # nobody knows where it was: the types are told apart
        log = log._replace(frame=registry.identity_of(job.name))
    return failed(claim, error, job, registry.known(job.name), log)


def over_time(limit: float) -> TimeoutError:
    """Return the error of an attempt that ran longer than its `timeout`, in seconds."""
    return TimeoutError(f"The attempt ran longer than its time limit of {limit:g} s and was ended.")


def succeeded_elsewhere(claim: Claim, result: bytes, run_ms: int) -> Attempted:
    """Return how an attempt ends that succeeded in a child that was ended before it could record this.

    Raises CorruptRecord."""
    job = decode(claim.id, claim.queue, claim.record)
    return Attempted(
        claim,
        Succeeded(result),
        job.name,
        definition=registry.known(job.name),
        run_ms=run_ms,
        wait_ms=claim.waited(job),
        controls=job.controls,
    )


def follow_all(store: Store, queues: Sequence[str]) -> bool:
    """Do what follows from all ends in these queues, whoever ended the jobs.  Returns whether there was anything."""
    return sum(engine.advance(store, queue) + end_calls.follow(store, queue) for queue in store.unread(queues)) > 0


def end(store: Store, attempted: Attempted, deliver: Deliver = send) -> Attempted | None:
    """Do `settle`, and announce the end that it recorded."""
    recorded = settle(store, attempted)
    if recorded:
        after_ends(store, attempted.claim.queue, [recorded], deliver)
    return recorded


def after_ends(store: Store, queue: str, recorded: Sequence[Attempted], deliver: Deliver = send) -> None:
    """Announce the ends that one call recorded, and do what follows from them.  Maintenance does what fails now."""
    announce_all(recorded, deliver)
    in_workflow = any(each.controls.workflow is not None for each in recorded)
    advance(store, queue, in_workflow=in_workflow, is_followed=any(map(_is_followed, recorded)))


def advance(store: Store, queue: str, *, in_workflow: bool = True, is_followed: bool = False) -> None:
    """Do what follows from ends that the store has noted: in workflows and batches, and, if one `is_followed`, the jobs
    that are called at the end or go on in another queue.  Maintenance does what fails now."""
    try:
        if in_workflow:
            engine.advance(store, queue)
        if is_followed:
            end_calls.follow_at_leisure(store, queue)
    except StoreError as error:
        if end_calls.later.is_new(error, queue):
            logger.warning("What follows from the ends of jobs in queue %r is done a little later: %s", queue, error)


def _is_followed(attempted: Attempted) -> bool:
    """Return whether its end has left an entry in `end_calls`."""
    outcome, controls = attempted.outcome, attempted.controls
    if isinstance(outcome, RetryIn):
        return outcome.queue != ""
    called = controls.on_end is not None or controls.on_dead is not None
    return called and isinstance(outcome, Succeeded | Cancelled | Dead)


def settle(store: Store, attempted: Attempted) -> Attempted | None:
    """End the attempt in the store.  Returns the attempt as recorded, or None if the claim was lost: then nothing
    changed in the store.

    A job that was asked to stop is recorded as cancelled if it would have been retried, snoozed or parked.

    Raises StoreError.  May be called again with the same attempt after StoreUnavailable.
    """
    claim, outcome = attempted.claim, attempted.outcome
    if isinstance(outcome, Succeeded):
        recorded = settle_successes(store, claim.queue, [attempted], [as_done(attempted)])
    elif isinstance(outcome, HandedOver):
        if ACTIVE:
            crashpoint("fail.before_send")
        # The new holder may already have reported the end: a lost claim is no error.
        store.transfer(claim, outcome.holder, outcome.lease)
        recorded = [attempted]
        if ACTIVE:
            crashpoint("fail.after_reply")
    else:
        recorded = settle_others(store, claim.queue, [attempted])
    return recorded[0] if recorded else None


def batches_of_others(attempts: Iterable[Attempted]) -> Iterator[list[Attempted]]:
    """Yield attempts of one queue in the batches in which `settle_others` ends them."""
    return in_batches(attempts, _bytes_to_log, SETTLED_AT_ONCE, SETTLED_BYTES)


def settle_others(store: Store, queue: str, attempts: Sequence[Attempted]) -> list[Attempted]:
    """Do `settle` for many attempts of one queue in one call; none of them succeeded or was handed over.

    Returns them as recorded, without those whose claims were lost.  Raises StoreError."""
    if ACTIVE:
        crashpoint("fail.before_send")
    for attempted in attempts:  # first: if the process dies in between, the lease of the job ends, and it waits
        if isinstance(attempted.outcome, SnoozeFor) and attempted.outcome.pauses:
            store.pause(queue, name=attempted.name, reason=attempted.outcome.pauses)
    states = store.settle(queue, [_as_ended(attempted) for attempted in attempts])
    if ACTIVE:
        crashpoint("fail.after_reply")
    recorded = []
    for attempted, state in zip(attempts, states, strict=True):
        if state is None:
            report_stale(attempted)
        elif state is State.CANCELLED and not isinstance(attempted.outcome, Cancelled):
            recorded.append(attempted._replace(outcome=Cancelled(_line_of(attempted))))
        else:
            recorded.append(attempted)
    return recorded


def _as_ended(attempted: Attempted) -> Ended:
    claim = attempted.claim
    match attempted.outcome:
        case RetryIn(delay, log, record, queue):
            return Ended(claim, "retry", log, delay, record=record, queue=queue)
        case SnoozeFor(delay, _, begun):
            return Ended(claim, "snooze", delay=delay, begun=begun)
        case Parked(knows):
            return Ended(claim, "park", knows=knows)
        case Refiled(record):
            return Ended(claim, "refile", record=record)
        case Cancelled(log):
            return Ended(claim, "discard", log)
        case Dead(log):
            return Ended(claim, "bury", log)
        case Succeeded() | HandedOver():
            raise TypeError(f"settle_others does not take an attempt that ended as {attempted.outcome!r:.200}.")


def _line_of(attempted: Attempted) -> Attempt:
    """Return the line for the log of a job that waits no more because it was asked to stop."""
    outcome = attempted.outcome
    return outcome.attempt if isinstance(outcome, RetryIn) else Attempt(attempted.claim.attempt, "discarded", 0)


def _bytes_to_log(attempted: Attempted) -> int:
    """Return about how many bytes the store writes into the job's log when it ends the attempt: it adds a line to those
    of the attempts before."""
    log = getattr(attempted.outcome, "attempt", None)
    if not isinstance(log, Attempt):
        return 0
    return (len(log.error) + len(log.traceback)) * min(max(log.attempt, 1), MAX_LOG)


def settle_successes(
    store: Store, queue: str, attempts: Sequence[Attempted], done: Sequence[Completed]
) -> list[Attempted]:
    """End many successful attempts of one queue in one call.  Returns those whose claims were still held.

    `done`: the same attempts in the form that `Store.complete` takes.  Raises StoreError."""
    if ACTIVE:
        crashpoint("ack.before_send")
    return still_held(attempts, store.complete(queue, done))


def still_held(attempts: Sequence[Attempted], stale: Sequence[str]) -> list[Attempted]:
    """Return the attempts whose end is recorded.  `stale`: the answer of `Store.complete`."""
    if ACTIVE:
        crashpoint("ack.after_reply")
    if not stale:
        return list(attempts)
    lost = set(stale)
    for attempted in attempts:
        if attempted.claim.id in lost:
            report_stale(attempted)
    return [attempted for attempted in attempts if attempted.claim.id not in lost]


def as_done(attempted: Attempted) -> Completed:
    """Return a successful attempt in the form that `Store.complete` takes."""
    claim, outcome, name, _, definition, _, run_ms, wait_ms, controls = attempted
    assert isinstance(outcome, Succeeded)
    counted_as = name if definition is None else definition.identity
    return Completed(claim, outcome.result, run_ms, counted_as, controls, wait_ms)


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
