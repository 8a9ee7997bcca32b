"""Runs jobs in a test, on its own thread and with its own clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol

from django_jobs.conf import get_settings
from django_jobs.conf.release import release
from django_jobs.core import registry
from django_jobs.core.attempt import Attempted
from django_jobs.core.context import RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.core.outcome import Refiled, Succeeded
from django_jobs.core.values import Claim, Lane, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.methods import Calls
from django_jobs.events.announce import announce_expired
from django_jobs.exceptions import CorruptRecord, JobNotFound, NewerRecord
from django_jobs.execution.executor import Executor
from django_jobs.execution.settle import end, failed_elsewhere, follow_all, over_time
from django_jobs.middleware import load
from django_jobs.runtime.async_twin import async_twin
from django_jobs.serialization.record import decode
from django_jobs.stores.in_tests import TestStore
from django_jobs.testing.commits import run_commit_callbacks
from django_jobs.testing.limits import OverTime, interrupted_after

_WORKER, _LEASE_MS, _BATCH = "test", 365 * 86_400_000, 1000
#: Maximum jobs of one `run_all`, so that a job which enqueues itself for ever makes the test fail.
_MOST_JOBS = 100_000


class JobRun:
    """The test's time, and everything that runs jobs.  Jobs run one after the other on the thread of the test."""

    store: TestStore

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._failures: list[tuple[str | None, BaseException]] = []

    # -- time ----------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the test's time in ms: the real time plus all travel."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def travel(self, to: datetime | timedelta | float) -> None:
        """Move the test's time by seconds or a timedelta, or to an aware datetime.  It never goes back."""
        if isinstance(to, datetime):
            ahead = round(to.timestamp() * 1000) - self.now_ms()
        else:
            ahead = round((to.total_seconds() if isinstance(to, timedelta) else to) * 1000)
        self._ahead_ms += max(0, ahead)

    # -- running ---------------------------------------------------------------

    def run_all(self, *, raise_errors: bool = False) -> list[JobHandle]:
        """Run every due job, and the jobs that these enqueue, until none is left.

        Returns a handle for each attempt, in order, with the job's state afterwards.  Later jobs and retries wait: see
        `run_due`.  With `raise_errors` the first error of a job is raised, as if it had been called.

        A job's `timeout` is kept: on the main thread the job is interrupted; on another (`arun_all`) it fails when it
        returns too late.

        Use `arun_all` in an `async def` test: async jobs need an event loop of their own, on another thread.
        """
        handles: list[JobHandle] = []
        while claim := self._next_claim():
            attempted = self._attempt(claim)
            attempted = end(self.store, attempted) or attempted
            if isinstance(attempted.outcome, Refiled):
                continue  # it waits again, and has not run
            handles.append(self._handle(claim, attempted.name))
            if raise_errors and isinstance(attempted.error, BaseException):
                raise attempted.error
            if len(handles) >= _MOST_JOBS:
                raise AssertionError(f"{_MOST_JOBS} jobs have run and more are waiting: does {claim} enqueue itself?")
        return [handle.refresh() for handle in handles]

    arun_all = async_twin(run_all)

    def run_due(self, at: datetime | None = None, *, raise_errors: bool = False) -> list[JobHandle]:
        """Move the time to `at` (an aware datetime; None = the time of the next job), then call `run_all`.

        The test's time applies to the queue only: `timezone.now()` does not change.
        """
        run_commit_callbacks(get_settings().database)
        if at is not None:
            self.travel(at)
        elif (due := self._next_due()) is not None:
            self._ahead_ms += max(0, due - self.now_ms())
        return self.run_all(raise_errors=raise_errors)

    arun_due = async_twin(run_due)

    def fail_next(self, task: AnyJob | str | None = None, error: BaseException | None = None) -> None:
        """Make the next attempt (of that job, if given) fail with `error` before its function starts."""
        name = task if isinstance(task, str) or task is None else definition_of(task).name
        self._failures.append((name, error or RuntimeError("fail_next() of the test kit")))

    def run_twice(self, handle: JobHandle) -> JobHandle:
        """Run a waiting job as after a crash at the worst moment: to its end, and then completely again.

        "At least once" permits this; a job is correct if the result is right afterwards.  Raises the error of either
        run, and AssertionError if the job is not waiting.
        """
        run_commit_callbacks(get_settings().database)
        with suppress(JobNotFound):
            handle.refresh()  # a retry may have moved it to another queue
        self.store.revive(handle.queue, [handle.id])
        claim = self._claim_of(handle)
        first = self._attempt(claim)
        second = self._attempt(claim)
        second = end(self.store, second) or second
        for attempted in (first, second):
            if not isinstance(attempted.outcome, Succeeded) and isinstance(attempted.error, BaseException):
                raise attempted.error
        return handle.refresh()

    # -- how -------------------------------------------------------------------

    def _attempt(self, claim: Claim) -> Attempted:
        """Run one claim on this thread, and keep its time limit as well as one thread can: see `interrupted_after`.

        An attempt that could not be interrupted, but took too long, has failed, too: a worker would have ended it."""
        limit, began = self._limit_of(claim), time.monotonic()
        attempted = None
        with suppress(OverTime), interrupted_after(limit):
            attempted = self._executor().attempt(claim, self.store)
        took = time.monotonic() - began
        if attempted is None or (limit is not None and took >= limit):
            error = over_time(limit or 0)
            return failed_elsewhere(claim, error, "timeout", self.now_ms(), int(took * 1000), release())
        return attempted

    def _limit_of(self, claim: Claim) -> float | None:
        try:
            timeout = decode(claim.id, claim.queue, claim.record).options.timeout
        except (CorruptRecord, NewerRecord):
            return None  # the executor says what follows
        return None if timeout is None else timeout / 1000

    def _executor(self) -> Executor:
        middleware = [*load(get_settings().middleware), self._failing]
        return Executor(middleware=middleware, clock=self.now_ms, close_connections=False)

    def _failing(self, get_next: Callable[[RunningJob], Any]) -> Callable[[RunningJob], Any]:
        """Middleware that raises the error set by fail_next."""

        def layer(job: RunningJob) -> Any:
            for i, (name, error) in enumerate(self._failures):
                if name in (None, job.name):
                    del self._failures[i]
                    raise error
            return get_next(job)

        return layer

    def _next_claim(self) -> Claim | None:
        run_commit_callbacks(get_settings().database)
        for queue, options in self._queues().items():
            for lane in Lane:
                limit = options.max_concurrency if options else 0
                claimed = self.store.claim(
                    queue,
                    _WORKER,
                    1,
                    lane=lane,
                    lease=_LEASE_MS,
                    max_running=limit,
                    knows=registry.digest(),
                    limits=registry.limits(),
                )
                announce_expired(queue, claimed.expired, claimed.now)
                if claimed.claims:
                    return claimed.claims[0]
        # What a person did to the steps of workflows has consequences, too.
        return self._next_claim() if follow_all(self.store, list(self._queues())) else None

    def _claim_of(self, handle: JobHandle) -> Claim:
        for lane in Lane:
            claims = self.store.claim(handle.queue, _WORKER, _BATCH, lane=lane, lease=_LEASE_MS).claims
            self.store.release(handle.queue, [claim for claim in claims if claim.id != handle.id])
            for claim in claims:
                if claim.id == handle.id:
                    return claim
        raise AssertionError(f"{handle!r} does not wait to be run (or its queue is paused).")

    def _handle(self, claim: Claim, name: str) -> JobHandle:
        return JobHandle(claim.id, name, claim.queue)

    def _queues(self) -> dict[str, Any]:
        configured = get_settings().queues
        return {name: configured.get(name) for name in dict.fromkeys([*self.store.queues(), *configured])}

    def _next_due(self) -> int | None:
        due = []
        for queue in self._queues():
            for state in (State.SCHEDULED, State.RETRY):
                due += [info.at for info in self.store.page(queue, state, limit=1)]
        return min(due, default=None)


class LayerTask(Protocol):
    """A task of the Celery layer."""

    @property
    def definition(self) -> JobDefinition: ...


class DjangoTask(Protocol):
    """A task of Django's framework; that of a JobsBackend has a `definition`, too, which Django's type does not say."""

    @property
    def module_path(self) -> str: ...


#: What tests pass for a job that they do not name by a text.
AnyJob = JobDefinition | Calls[..., Any] | LayerTask | DjangoTask


def definition_of(task: AnyJob) -> JobDefinition:
    """Return the definition of what tests pass: a job function, a task, or what `using` returned.

    Raises TypeError for anything else, such as a plain function or a task of another backend."""
    if isinstance(task, JobDefinition):
        return task
    found = task._definition if isinstance(task, Calls) else getattr(task, "definition", None)
    if not isinstance(found, JobDefinition):
        raise TypeError(f"{task!r} is no job: pass a function with @job, or a task that a JobsBackend runs.")
    return found
