"""How the attempts of remote jobs end: by a report over HTTP, or because no report came in time."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

from django_jobs.core import registry
from django_jobs.core.attempt import Attempted, waited
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import AnyFailure, Dead, Outcome, Succeeded, after_failure, clean, failed_attempt
from django_jobs.core.values import PLAIN, Claim
from django_jobs.events.announce import announce
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import CorruptRecord, Fail, JobsError, UnknownJob
from django_jobs.execution.settle import settle
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import dump_result
from django_jobs.stores.contract.store import Store

logger = logging.getLogger("django_jobs.remote")

#: Bytes kept of the error text in a report.
MAX_ERROR = 2048


class RemoteFailure(JobsError):
    """A remote worker reported that the attempt failed."""


class PermanentRemoteFailure(Fail):
    """A remote worker reported a failure that no other attempt would mend."""


class NoReport(JobsError):
    """No report came within the time limit of the remote job type."""


def succeed(store: Store, claim: Claim, result: Any = None) -> bool:
    """Record that a remote attempt succeeded.  False: the claim was lost, and nothing changed.

    A `result` that cannot be stored is logged, and the job succeeds.  Raises StoreError."""
    stored, why = dump_result(result)
    if why:
        logger.warning("The result of job %s (%s) is not kept. %s", claim.id, name_of(claim.record), why)
    now = store.now()
    return _end(store, claim, Succeeded(stored), None, max(0, now - claim.claimed_at) if claim.claimed_at else -1)


def fail(store: Store, claim: Claim, error: str, *, retryable: bool = True) -> bool:
    """Record that a remote attempt failed.  It is retried like other jobs if `retryable`.  False: the claim was lost.

    Raises StoreError."""
    message = clean(error or "The worker gave no reason.", MAX_ERROR)
    return _fail(store, claim, (RemoteFailure if retryable else PermanentRemoteFailure)(message), "failed")


def _fail(store: Store, claim: Claim, error: JobsError, kind: str) -> bool:
    now = store.now()
    run_ms = max(0, now - claim.claimed_at) if claim.claimed_at else -1
    log = failed_attempt(error, number=claim.attempt, at=now, run_ms=run_ms, worker=claim.worker, outcome=kind)
    try:
        job = decode(claim.id, claim.queue, claim.record)
    except CorruptRecord:
        return _end(store, claim, Dead(log._replace(outcome="corrupt", traceback="")), error, run_ms)
    outcome = after_failure(
        error,
        _definition(job.name) or AnyFailure(),
        # The traceback is that of this process: it says nothing about the failure in the remote worker.
        log._replace(traceback=""),
        max_attempts=job.options.max_attempts,
        on_exhausted=job.options.on_exhausted,
        at_most_once=job.controls.at_most_once,
        jitter=random.random(),
    )
    return _end(store, claim, outcome, error, run_ms)


def _end(store: Store, claim: Claim, outcome: Outcome, error: JobsError | None, run_ms: int) -> bool:
    name, controls, wait_ms = name_of(claim.record), PLAIN, 0
    try:
        job = decode(claim.id, claim.queue, claim.record)
        controls, wait_ms = job.controls, waited(claim, job)
    except CorruptRecord as problem:
        logger.warning("%s", problem)
    attempted = Attempted(claim, outcome, name, None, _definition(name), error, run_ms, wait_ms, controls)
    recorded = settle(store, attempted)
    if recorded:
        announce(recorded, deliver_here)
    return recorded is not None


def _definition(name: str) -> JobDefinition | None:
    try:
        return registry.get(name)
    except UnknownJob:
        return None


def _was_sent(claim: Claim) -> bool:
    """Was this job sent to a remote worker?  A job that this project defines was not: a claim over HTTP that gets one
    hands it back, so it has not begun."""
    name = name_of(claim.record)
    return name not in registry.names()


class RemoteWatch:
    """A maintenance task: attempts without a report in time fail.  Several workers may run it for the same queues."""

    def __init__(self, store: Store, queues: Callable[[], Iterable[str]]) -> None:
        self.store, self.queues = store, queues

    def tick(self) -> int:
        """Fail the attempts that are overdue now, at most 100 per queue.  Returns how many failed."""
        failed = 0
        for queue in self.queues():
            for claim in self.store.overdue(queue):
                if not _was_sent(claim):
                    self.store.release(queue, [claim])
                else:
                    failed += _fail(self.store, claim, NoReport(), "timeout")
        return failed
