"""Tells the world how attempts ended: signals, and one log line per job end.  Arguments are never logged."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django_jobs import registry, signals
from django_jobs.codec import name_of
from django_jobs.exceptions import UnknownJob
from django_jobs.outcome import Cancelled, Dead, HandedOver, RetryIn, SnoozeFor, Succeeded
from django_jobs.values import Recovered, State
from django_jobs.worker.attempted import Attempted

logger = logging.getLogger("django_jobs.worker")


def anybody_listens() -> bool:
    """Would telling of a success reach anybody?  Asked once per batch."""
    return bool(signals.job_succeeded.receivers) or logger.isEnabledFor(logging.INFO)


def announce(attempted: Attempted) -> None:
    """Send the signals and log the line of one attempt that is settled."""
    match attempted.outcome:
        case Succeeded():
            _send(signals.job_succeeded, attempted, run_ms=attempted.run_ms, wait_ms=attempted.wait_ms)
            _line(logging.INFO, "succeeded", attempted)
        case RetryIn(delay, _):
            _send(signals.job_failed, attempted, error=attempted.error, run_ms=attempted.run_ms)
            _send(signals.job_retried, attempted, error=attempted.error, delay_ms=delay)
            _line(logging.INFO, "retry", attempted)
        case Dead(log):
            if attempted.definition is not None:
                _send(signals.job_failed, attempted, error=attempted.error, run_ms=attempted.run_ms)
            _send(signals.job_dead, attempted, error=attempted.error, outcome=log.outcome)
            _line(logging.ERROR, "dead", attempted)
        case Cancelled():
            _send(signals.job_cancelled, attempted, error=attempted.error)
            _line(logging.INFO, "cancelled", attempted)
        case SnoozeFor(_, park):
            _line(logging.WARNING if park else logging.INFO, "scheduled", attempted)
        case HandedOver():
            pass


def _send(signal: Any, attempted: Attempted, **more: Any) -> None:
    if signal.receivers:
        claim = attempted.claim
        signal.send_robust(
            attempted.definition,
            job_id=claim.id,
            name=attempted.name,
            queue=claim.queue,
            attempt=claim.attempt,
            job=attempted.running,
            **more,
        )


def _line(level: int, state: str, attempted: Attempted) -> None:
    if not logger.isEnabledFor(level):
        return
    claim, error = attempted.claim, attempted.error
    reason = "" if error is None else f": {error if isinstance(error, str) else type(error).__qualname__}"
    logger.log(
        level,
        "%s %s on %s: %s, attempt %d, waited %d ms, ran %d ms%s",
        attempted.name,
        claim.id,
        claim.queue,
        state,
        claim.attempt,
        attempted.wait_ms,
        max(attempted.run_ms, 0),
        reason,
        extra={"job_id": claim.id, "job_name": attempted.name, "job_queue": claim.queue, "job_attempt": claim.attempt},
    )


# -- ends that no attempt came to here -------------------------------------------


def announce_expired(queue: str, expired: Iterable[tuple[str, bytes]]) -> None:
    """Jobs that a claim found past their `expires_at`."""
    for job_id, record in expired:
        _send_bare(signals.job_expired, queue, job_id, record, 0)
        logger.info("%s %s on %s: expired before it started", name_of(record), job_id, queue)


def announce_recovered(queue: str, recovered: Iterable[Recovered]) -> None:
    """Jobs that were taken from a worker that died or lost its lease."""
    for job in recovered:
        name, reason = name_of(job.record), "its worker was lost"
        logger.warning("%s %s on %s: %s, after worker %s was lost", name, job.id, queue, job.state, job.worker)
        if job.state is State.DEAD:
            _send_bare(signals.job_dead, queue, job.id, job.record, job.crashes, error=reason, outcome="worker_lost")
        elif job.state is State.CANCELLED:
            _send_bare(signals.job_cancelled, queue, job.id, job.record, job.crashes, error=reason)


def _send_bare(signal: Any, queue: str, job_id: str, record: bytes, attempt: int, **more: Any) -> None:
    if not signal.receivers:
        return
    name = name_of(record)
    try:
        definition = registry.get(name)
    except UnknownJob:
        definition = None
    signal.send_robust(definition, job_id=job_id, name=name, queue=queue, attempt=attempt, job=None, **more)
