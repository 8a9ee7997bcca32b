"""Tells the world how attempts ended: signals, and one log line per job end.  Arguments are never logged.

The line is written here; `deliver` sees to the signals: by default it sends them, a parent hands them to its clerk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django_jobs import signals
from django_jobs.codec import name_of
from django_jobs.outcome import Cancelled, Dead, HandedOver, RetryIn, SnoozeFor, Succeeded
from django_jobs.values import Recovered, State
from django_jobs.worker.attempted import Attempted
from django_jobs.worker.notices import Deliver, Notice, has_receivers, send

logger = logging.getLogger("django_jobs.worker")


def anybody_listens() -> bool:
    """Would telling of a success reach anybody?  Asked once per batch."""
    return bool(signals.job_succeeded.receivers) or logger.isEnabledFor(logging.INFO)


def announce(attempted: Attempted, deliver: Deliver = send) -> None:
    """Write the line of one attempt that is settled, and have its signals sent."""
    error = attempted.error
    match attempted.outcome:
        case Succeeded():
            _tell("job_succeeded", attempted, deliver, run_ms=attempted.run_ms, wait_ms=attempted.wait_ms)
            _line(logging.INFO, "succeeded", attempted)
        case RetryIn(delay, _):
            _tell("job_failed", attempted, deliver, error=error, run_ms=attempted.run_ms)
            _tell("job_retried", attempted, deliver, error=error, delay_ms=delay)
            _line(logging.INFO, "retry", attempted)
        case Dead(log):
            if attempted.definition is not None:
                _tell("job_failed", attempted, deliver, error=error, run_ms=attempted.run_ms)
            _tell("job_dead", attempted, deliver, error=error, outcome=log.outcome)
            _line(logging.ERROR, "dead", attempted)
        case Cancelled():
            _tell("job_cancelled", attempted, deliver, error=error)
            _line(logging.INFO, "cancelled", attempted)
        case SnoozeFor(_, park):
            _line(logging.WARNING if park else logging.INFO, "scheduled", attempted)
        case HandedOver():
            pass


def _tell(signal: str, attempted: Attempted, deliver: Deliver, **more: Any) -> None:
    if has_receivers(signal):
        claim, name = attempted.claim, attempted.name
        definition, job = attempted.definition, attempted.running
        deliver(Notice(signal, name, claim.queue, claim.id, claim.attempt, more, definition, job))


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
        name = name_of(record)
        _tell_bare(Notice("job_expired", name, queue, job_id, 0, {}), send)
        logger.info("%s %s on %s: expired before it started", name, job_id, queue)


def announce_recovered(queue: str, recovered: Iterable[Recovered], deliver: Deliver = send) -> None:
    """Jobs that were taken from a worker that died or lost its lease."""
    for job in recovered:
        name, reason = name_of(job.record), "its worker was lost"
        logger.warning("%s %s on %s: %s, after worker %s was lost", name, job.id, queue, job.state, job.worker)
        if job.state is State.DEAD:
            more = {"error": reason, "outcome": "worker_lost"}
            _tell_bare(Notice("job_dead", name, queue, job.id, job.crashes, more), deliver)
        elif job.state is State.CANCELLED:
            _tell_bare(Notice("job_cancelled", name, queue, job.id, job.crashes, {"error": reason}), deliver)


def _tell_bare(notice: Notice, deliver: Deliver) -> None:
    if has_receivers(notice.signal):
        deliver(notice)
