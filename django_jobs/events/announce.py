"""Announces how attempts ended: signals, and one log line per end of a job.  Arguments are never logged.

These functions write the line.  `deliver` sends the signals: at once by default; a parent passes them to its
maintenance process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from django_jobs import signals
from django_jobs.core.attempt import Attempted
from django_jobs.core.outcome import Cancelled, Dead, HandedOver, Parked, Refiled, RetryIn, SnoozeFor, Succeeded
from django_jobs.core.values import Expired, Recovered, State
from django_jobs.events.signal_events import Deliver, SignalEvent, is_wanted, send
from django_jobs.logs import JobEnd
from django_jobs.serialization.record import name_of, tags_of, waited_ms
from django_jobs.stores.values.answers import MISPLACED

logger = logging.getLogger("django_jobs.worker")


def _anybody_listens(attempts: Iterable[Attempted]) -> bool:
    """Would the announcement of these successes reach a signal receiver or the log?  Called once per batch."""
    if signals.job_succeeded.receivers or logger.isEnabledFor(logging.INFO):
        return True
    return bool([each for each in attempts if each.definition is not None and each.definition.told_of])


def announce_all(attempts: Sequence[Attempted], deliver: Deliver = send) -> None:
    """Do `announce` for attempts that one call settled: all of them succeeded, or none."""
    if attempts and isinstance(attempts[0].outcome, Succeeded) and not _anybody_listens(attempts):
        return
    for attempted in attempts:
        announce(attempted, deliver)


def forget_locals(attempted: Attempted) -> bool:
    """Drop the frames of the attempt's exception: they keep the job's local variables, until the end is recorded.

    False: they stay, because a receiver of a signal may look at them."""
    definition = attempted.definition
    if (
        signals.job_failed.receivers or signals.job_retried.receivers or signals.job_dead.receivers
        or signals.job_cancelled.receivers or (definition is not None and definition.told_of)
    ):  # fmt: skip
        return False
    errors = [attempted.error]
    while errors:
        error = errors.pop()
        if isinstance(error, BaseException) and error.__traceback__ is not None:
            error.with_traceback(None)  # a frozen dataclass has no other way
            errors += (error.__cause__, error.__context__)
            if isinstance(error, BaseExceptionGroup):
                errors += error.exceptions
    return True


def announce(attempted: Attempted, deliver: Deliver = send) -> None:
    """Write the log line of one settled attempt, and send its signals through `deliver`."""
    error = attempted.error
    match attempted.outcome:
        case Succeeded():
            _tell("job_succeeded", attempted, deliver, run_ms=attempted.run_ms, wait_ms=attempted.wait_ms)
            _ended(attempted).log("succeeded")
        case RetryIn(delay):
            _tell("job_failed", attempted, deliver, error=error, run_ms=attempted.run_ms)
            _tell("job_retried", attempted, deliver, error=error, delay_ms=delay)
            _ended(attempted).log("retry")
        case Dead(log):
            if attempted.definition is not None:
                _tell("job_failed", attempted, deliver, error=error, run_ms=attempted.run_ms)
            _tell("job_dead", attempted, deliver, error=error, outcome=log.outcome)
            _ended(attempted, log.outcome).log_death()
        case Cancelled():
            _tell("job_cancelled", attempted, deliver, error=error)
            _ended(attempted).log("cancelled")
        case SnoozeFor():
            _ended(attempted).log("scheduled")
        case Parked():
            _ended(attempted).log("blocked", logging.WARNING)
        case HandedOver() | Refiled():
            pass


def _tell(signal: str, attempted: Attempted, deliver: Deliver, **more: Any) -> None:
    claim, name, definition = attempted.claim, attempted.name, attempted.definition
    if getattr(signals, signal).receivers or (definition is not None and signal in definition.told_of):
        deliver(SignalEvent(signal, name, claim.queue, claim.id, claim.attempt, more, definition, attempted.running))


def _ended(attempted: Attempted, otherwise: str = "") -> JobEnd:
    """Return the log line.  It names only the class of an exception, whose text may quote arguments."""
    claim, error = attempted.claim, attempted.error
    why = type(error).__qualname__ if isinstance(error, BaseException) else error or otherwise
    tags = attempted.running.tag_words if attempted.running else _tags(claim.record)
    times = attempted.wait_ms, attempted.run_ms
    return JobEnd(attempted.name, claim.id, claim.queue, claim.attempt, *times, why, tags)


def _tags(record: bytes) -> str:
    return " ".join(tags_of(record))


# -- ends of jobs without an attempt in this process ------------------------------


def announce_expired(queue: str, expired: Iterable[Expired], now: int, deliver: Deliver = send) -> None:
    """Announce jobs that were found past their `expires_at`; `now` is the store's time in ms."""
    for job_id, record, since in expired:
        name = name_of(record)
        _tell_bare(SignalEvent("job_expired", name, queue, job_id, 0, {}), deliver)
        JobEnd(name, job_id, queue, 0, waited_ms(record, since, now), tags=_tags(record)).log("expired")


def announce_recovered(queue: str, recovered: Iterable[Recovered], deliver: Deliver = send) -> None:
    """Announce jobs that were recovered from a worker that died or lost its lease."""
    for job in recovered:
        name, why = name_of(job.record), "its worker was lost"
        if job.state is State.QUEUED:
            logger.warning("%s %s on %s: %s, after worker %s was lost", name, job.id, queue, job.state, job.worker)
            continue
        wait_ms, held_ms = waited_ms(job.record, job.since, job.claimed_at), job.at - job.claimed_at
        lost = f"worker {job.worker} was lost"
        ended = JobEnd(name, job.id, queue, job.attempt, wait_ms, held_ms, lost, _tags(job.record))
        if job.state is State.DEAD:
            more = {"error": why, "outcome": "worker_lost"}
            _tell_bare(SignalEvent("job_dead", name, queue, job.id, job.attempt, more), deliver)
            ended.log_death()
        else:
            _tell_bare(SignalEvent("job_cancelled", name, queue, job.id, job.attempt, {"error": why}), deliver)
            ended.log("cancelled")


def announce_misplaced(queue: str, buried: Iterable[tuple[str, bytes]], deliver: Deliver = send) -> None:
    """Announce at-most-once jobs that a repair moved to dead because the store had lost their place."""
    for job_id, record in buried:
        name, more = name_of(record), {"error": MISPLACED.error, "outcome": MISPLACED.outcome}
        JobEnd(name, job_id, queue, 0, why="the store lost its state", tags=_tags(record)).log_death()
        _tell_bare(SignalEvent("job_dead", name, queue, job_id, 0, more), deliver)


def _tell_bare(signal_event: SignalEvent, deliver: Deliver) -> None:
    if is_wanted(signal_event):
        deliver(signal_event)
