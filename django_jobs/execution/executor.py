"""Runs one claimed job: record → arguments → middleware → function → outcome.  Starts no processes and no threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from time import perf_counter, time
from types import CoroutineType
from typing import Any, NamedTuple

from django_jobs.conf import get_settings, in_debug
from django_jobs.conf.release import release
from django_jobs.core import registry
from django_jobs.core.attempt import Attempted
from django_jobs.core.context import RunningJob, StopRequests, running
from django_jobs.core.definition import soft_timeout_of, stores_result
from django_jobs.core.outcome import (
    WAITS_FOR_ITS_WORKER,
    Dead,
    HandedOver,
    Parked,
    Refiled,
    SnoozeFor,
    Succeeded,
    failed_attempt,
)
from django_jobs.core.sensitive import Scrub
from django_jobs.core.signature import frame_of
from django_jobs.core.values import Attempt, Claim, Job
from django_jobs.enqueueing.keys import refiled
from django_jobs.events.signal_events import Deliver, SignalEvent, send
from django_jobs.exceptions import CorruptRecord, InvalidArguments, NewerRecord, PayloadError, Signal, UnknownJob
from django_jobs.execution import replicas
from django_jobs.execution.plan import Plan, run_coroutine_here
from django_jobs.execution.retried import retried
from django_jobs.execution.settle import end, failed
from django_jobs.middleware import Middleware, load
from django_jobs.runtime import database_connections, forks
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.runtime.thread_caches import this_thread, warm_caches
from django_jobs.serialization import arguments
from django_jobs.serialization.masking import scrub_for
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import dump_result
from django_jobs.signals import job_started, job_succeeded
from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs.worker")
#: Names of job types for which this process has logged that their results cannot be kept.
_warned: set[str] = set()
#: How most attempts end: the function returned None.
_NOTHING = Succeeded()
#: What the function of a remote job type returns.
_ELSEWHERE = HandedOver, SnoozeFor


class Prepared(NamedTuple):
    """A job that is ready to run in this process."""

    claim: Claim
    job: Job
    running: RunningJob
    plan: Plan


class Executor:
    """Turns claims into outcomes.

    `Executor().run(claim, store)` runs a claim at once on this thread and settles it.  Workers call its parts instead:
    `prepare`, then `run_here` or `run_on_loop`.  Threads may share one executor.

    `middleware`: as in the MIDDLEWARE setting (default: that setting); `clock`: returns the store's time in ms;
    `close_connections`: tidy database connections before and after each job (off inside a test's transaction);
    `deliver(event)`: calls the receivers of job_started, or passes the event on (default: calls them at once).
    """

    def __init__(
        self,
        *,
        middleware: Sequence[Middleware] | None = None,
        stops: StopRequests | None = None,
        clock: Callable[[], int] = lambda: int(time() * 1000),
        close_connections: bool = True,
        run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any] = run_coroutine_here,
        deliver: Deliver = send,
    ) -> None:
        self.middleware = load(get_settings().middleware) if middleware is None else tuple(middleware)
        self.stops = StopRequests() if stops is None else stops
        self.clock = clock
        self.close_connections = close_connections
        self.run_coroutine, self.deliver = run_coroutine, deliver
        self._plans: dict[str, Plan] = {}

    def run(self, claim: Claim, store: Store) -> Attempted:
        """Run one claim to its end on this thread, settle it, and send the signals.  Returns how the attempt ended.

        Raises StoreError if the end cannot be recorded."""
        attempted = self.attempt(claim, store)
        return end(store, attempted) or attempted

    def attempt(self, claim: Claim, store: Store) -> Attempted:
        """Run one claim to its end on this thread; the caller settles it."""
        prepared = self.prepare(claim, store)
        if isinstance(prepared, Attempted):
            return prepared
        return self.run_here(prepared)

    # -- before --------------------------------------------------------------

    def prepare(self, claim: Claim, store: Store, begins: Callable[[Job], None] | None = None) -> Prepared | Attempted:
        """Read the record and its arguments, without a look into the database.  Returns an Attempted if the attempt has
        already ended, for example because the record cannot be read.

        `begins(job)` is called before the first step that may be slow: the time limit counts from then on."""
        knows = registry.digest()  # first: job types learned during this call change the digest, which unparks the job
        try:
            job = decode(claim.id, claim.queue, claim.record)
            plan = self.plan(job.name)
        except (UnknownJob, NewerRecord) as error:
            # The error is passed as text, which the log shows: the text says what to do and quotes no argument.
            return Attempted(claim, Parked(knows), name_of(claim.record), error=f"{error} {WAITS_FOR_ITS_WORKER}")
        except CorruptRecord as error:
            return self._not_run(claim, "corrupt", error, name_of(claim.record))
        if plan.options.max_concurrency and (record := refiled(plan.definition, job)) is not None:
            return Attempted(claim, Refiled(record), job.name, controls=job.controls)
        if job.controls.at_most_once and not replicas.may_start(store, claim):
            said = "The claim has not reached as many replicas as MIN_REPLICAS asks for. The job has not started."
            return Attempted(claim, SnoozeFor(replicas.AGAIN, begun=False), job.name, error=said)
        if begins is not None:
            begins(job)
        if self.close_connections:
            database_connections.before_job()
        if self.stops.jobs:
            # A request to stop an earlier attempt does not apply to this one.
            self.stops.jobs.discard((claim.queue, claim.id))
        scrubber = partial(scrub_for, job) if plan.options.sensitive or job.options.sensitive else None
        try:
            args, kwargs = arguments.read(job.args)
        except PayloadError as error:
            return self._not_run(claim, "corrupt", error, job.name, scrub_for(job))
        running_job = RunningJob(
            claim, job, args, kwargs, self.stops, store.checkin, soft_timeout_of(job, plan.options), scrubber
        )
        if b'"$model"' in job.args:  # needs_database, without the call
            running_job.has_references = True
        return Prepared(claim, job, running_job, plan)

    def plan(self, name: str) -> Plan:
        """Return how jobs of that name run in this process.  Raises UnknownJob."""
        definition = registry.get(name)
        plan = self._plans.get(name)
        if plan is None or plan.definition is not definition or plan.settings is not get_settings():
            try:
                plan = self._plans[name] = Plan(definition, self.middleware, self.run_coroutine)
            except Exception as error:
                # If a middleware raises while it wraps this job, only this job fails, not the process.
                return Plan(definition, [_failing(error)], self.run_coroutine)
        return plan

    # -- running -------------------------------------------------------------

    def run_here(self, prepared: Prepared) -> Attempted:
        """Run the job on this thread, also an async job.

        It runs in its own context: a language, time zone or URL configuration that it activates, and context variables
        that it sets, end with it."""
        if not this_thread.is_warm:
            warm_caches()
        return copy_context().run(self._run_here, prepared)

    def _run_here(self, prepared: Prepared) -> Attempted:
        plan = prepared.plan
        # Not reset afterwards: it ends with the context that this method runs in.
        running.set(prepared.running)
        started = self._begin(prepared)
        if ACTIVE:
            crashpoint("run.before")
        try:
            value = plan.call(prepared.running)
            # An async middleware that does not say so returns a coroutine, too.
            if value is not None and (plan.on_loop or type(value) is CoroutineType):
                value = self.run_coroutine(value)
        except BaseException as error:
            return self._failed(prepared, error, started)
        finally:
            if forks.is_copy:
                forks.leave()
            if self.close_connections:
                database_connections.after_job(prepared.claim.id, prepared.job.name)
        if ACTIVE:
            crashpoint("run.after")
        return self._returned(prepared, value, started)

    async def run_on_loop(self, prepared: Prepared) -> Attempted:
        """Run a job whose plan says `on_loop` on the running event loop."""
        context = running.set(prepared.running)
        started = self._begin(prepared)
        try:
            value = await prepared.plan.call(prepared.running)
        except BaseException as error:
            return self._failed(prepared, error, started)
        finally:
            if forks.is_copy:
                forks.leave()
            running.reset(context)
        return self._returned(prepared, value, started)

    def _begin(self, prepared: Prepared) -> float:
        """Send job_started.  Returns when the job began."""
        definition = prepared.plan.definition
        if job_started.receivers or definition.told_of:
            claim = prepared.claim
            event = SignalEvent("job_started", prepared.job.name, claim.queue, claim.id, claim.attempt, more={})
            self.deliver(event._replace(definition=definition, job=prepared.running))
        return perf_counter()

    # -- after ---------------------------------------------------------------

    def _returned(self, prepared: Prepared, value: Any, started: float) -> Attempted:
        run_ms = int((perf_counter() - started) * 1000)
        claim, job, running_job, plan = prepared
        definition = plan.definition
        if value is None and not definition.keeps_worker:
            outcome = _NOTHING
        # Not isinstance: it makes a lazy object, which may raise.
        elif type(value) in _ELSEWHERE:  # a remote job type: a remote worker does the work
            return Attempted(claim, value, job.name, running=running_job, definition=definition)
        else:
            outcome = Succeeded(self._stored(value, prepared))
        is_wanted = job_succeeded.receivers or definition.told_of
        return Attempted(
            claim,
            outcome,
            job.name,
            # What waits to be settled is as little as possible: it makes Python's garbage collector work.
            running=running_job if is_wanted else None,
            definition=definition,
            run_ms=run_ms,
            wait_ms=claim.waited(job),
            controls=job.controls,
        )

    def _stored(self, value: Any, prepared: Prepared) -> bytes:
        """Return the result as it is stored, or the stored form of the reason why there is none.  The job succeeds in
        both cases: its function has returned and must not run again."""
        plan = prepared.plan
        if not stores_result(prepared.job, plan.options):
            return b""
        stored, why = dump_result(value, prepared.claim.worker if plan.definition.keeps_worker else None)
        if why and plan.definition.name not in _warned:
            _warned.add(plan.definition.name)
            logger.warning(
                "The result of %s is not kept. Its jobs still succeed. %s This is logged once.",
                plan.definition.name,
                why,
            )
        return stored

    def _failed(self, prepared: Prepared, error: BaseException, started: float | None) -> Attempted:
        """SystemExit, KeyboardInterrupt and MemoryError raised by a job fail the job; they do not end the worker."""
        claim, job, plan = prepared.claim, prepared.job, prepared.plan
        run_ms = -1 if started is None else int((perf_counter() - started) * 1000)
        error, following = retried(job, plan.definition, _misfit(plan, prepared.running, error))
        log = self._log(claim, error, "failed", run_ms, scrub_for(job, following))
        if in_debug() and not isinstance(error, Signal):
            # In development a failure is seen where the developer looks; elsewhere its text may be private.
            logger.warning("%s %s failed in attempt %d:\n%s", job.name, claim.id, claim.attempt, log.traceback)
        return failed(claim, error, job, plan.definition, log, prepared.running, following)

    def _not_run(
        self, claim: Claim, outcome: str, error: BaseException, name: str, scrub: Scrub | None = None
    ) -> Attempted:
        return Attempted(claim, Dead(self._log(claim, error, outcome, -1, scrub)), name, error=error)

    def _log(
        self, claim: Claim, error: BaseException, outcome: str, run_ms: int = -1, scrub: Scrub | None = None
    ) -> Attempt:
        known: dict[str, Any] = {"number": claim.attempt, "at": self.clock(), "worker": claim.worker}
        known |= {"release": release(), "frame": frame_of(error, get_settings().base_dir)}
        return failed_attempt(error, run_ms=run_ms, outcome=outcome, scrub=scrub, **known)


def _failing(error: Exception) -> Middleware:
    def fail(job: RunningJob) -> Any:
        raise error

    return lambda _: fail


def _misfit(plan: Plan, job: RunningJob, error: BaseException) -> BaseException:
    """Return an InvalidArguments error for a TypeError whose cause is that the arguments do not fit the function, which
    may have changed since the job was enqueued.  Return any other error unchanged."""
    if isinstance(error, TypeError):
        try:
            plan.definition.bind(job.args, job.kwargs)
        except InvalidArguments as misfit:
            return misfit.with_traceback(error.__traceback__)
    return error
