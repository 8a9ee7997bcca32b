"""The job that is running: what middleware and `takes_context` functions get, and `current_job()`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from json import dumps
from time import monotonic, time
from types import SimpleNamespace
from typing import Any, Literal

from django_jobs.core.outcome import clean
from django_jobs.core.values import Claim, Job, tags_in
from django_jobs.exceptions import StoreError

logger = logging.getLogger("django_jobs.worker")

StopReason = Literal["cancelled", "shutdown", "timeout"]
#: Minimum seconds between two check-ins of one job that reach the store; after that, the newest one is sent.
CHECKIN_INTERVAL = 1.0
#: A check-in message is cut after this many bytes.
MAX_MESSAGE_BYTES = 1024


class StopRequests:
    """Which jobs of this process should stop: all (it drains), or single ones (cancelled, or their claim was lost)."""

    __slots__ = ("everybody", "jobs")

    def __init__(self) -> None:
        self.everybody = False
        #: (queue, id)
        self.jobs: set[tuple[str, str]] = set()


class RunningJob:
    """One attempt of one job, as middleware sees it.

    `args` (list) and `kwargs` (dict) may be changed before `get_next(job)`.  A model instance in them is a
    ModelReference until the last middleware has called on: a middleware may choose the tenant or the database before.
    `context` is a new namespace for every attempt; `meta` and `scope` are what enqueue middleware sent with the job.
    """

    __slots__ = (
        "_checkin", "_claim", "_context", "_job", "_last_sent", "_pending", "_stops", "args", "has_references",
        "kwargs", "scrubber", "soft_deadline", "soft_timeout",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        job: Job,
        args: list[Any],
        kwargs: dict[str, Any],
        stops: StopRequests | None = None,
        checkin: Callable[[Claim, bytes], bool] | None = None,
        soft_timeout: float | None = None,
        scrubber: Callable[[], Callable[[str], str] | None] | None = None,
    ) -> None:
        """`checkin`: Store.checkin; `soft_timeout` in seconds from now."""
        # Two values and no copies of their fields: this is made for every attempt.
        self._claim, self._job, self.args, self.kwargs = claim, job, args, kwargs
        self._stops, self._checkin = stops, checkin
        #: do the arguments have a ModelReference, which is loaded just before the function runs?
        self.has_references = False
        #: makes a function that takes the values of sensitive arguments out of a text; None = the job has none.
        self.scrubber = scrubber
        self.soft_timeout = soft_timeout
        #: monotonic seconds, or None.
        self.soft_deadline = None if soft_timeout is None else monotonic() + soft_timeout
        self._context: SimpleNamespace | None = None
        self._pending: bytes | None = None
        self._last_sent = 0.0

    def __repr__(self) -> str:
        return f"<RunningJob {self.name} {self.id} attempt {self.attempt}>"

    @property
    def id(self) -> str:
        return self._claim.id

    @property
    def name(self) -> str:
        """The name of the job type."""
        return self._job.name

    @property
    def queue(self) -> str:
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 for the first start."""
        return self._claim.attempt

    @property
    def max_attempts(self) -> int:
        """The number of the last attempt that failures can lead to."""
        return self._claim.earlier + self._job.options.max_attempts

    @property
    def token(self) -> int:
        """Grows with every later claim in this queue."""
        return self._claim.token

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        return self._claim.worker

    @property
    def meta(self) -> dict[str, Any] | None:
        """What enqueue middleware sent with the job."""
        return self._job.meta

    @property
    def scope(self) -> str:
        """The tenant, site or other scope that enqueue middleware gave the job; "" = none."""
        return self._job.options.scope

    @property
    def workflow(self) -> str | None:
        """The id of the workflow or batch that the job belongs to; None = none."""
        return self._job.controls.workflow

    @property
    def context(self) -> SimpleNamespace:
        if self._context is None:
            self._context = SimpleNamespace()
        return self._context

    @property
    def tag_words(self) -> str:
        """The tags as they are stored, separated by spaces."""
        return self._job.options.tags

    @property
    def tags(self) -> tuple[str, ...]:
        """The words to find and count it by, of its job type and of `using(tags=…)`."""
        return tags_in(self.tag_words)

    @property
    def enqueued_ms(self) -> int:
        return self._job.enqueued_at

    @property
    def ready_ms(self) -> int:
        return max(self._claim.since, self._job.enqueued_at)

    @property
    def claimed_ms(self) -> int:
        return self._claim.claimed_at

    @property
    def enqueued_at(self) -> datetime:
        return datetime.fromtimestamp(self.enqueued_ms / 1000, UTC)

    @property
    def ready_at(self) -> datetime:
        """When this attempt could first run.  From then until `claimed_at` it waited for a worker."""
        return datetime.fromtimestamp(self.ready_ms / 1000, UTC)

    @property
    def claimed_at(self) -> datetime:
        return datetime.fromtimestamp(self.claimed_ms / 1000, UTC)

    @property
    def should_stop(self) -> bool:
        """True if this job was asked to end; `stop_reason` says why."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why this job should end; None: it need not end.  "cancelled": a person asked, or its claim was lost.
        "shutdown": the worker stops, and a job that has not ended in time runs again.  "timeout": its `soft_timeout`
        is over."""
        stops = self._stops
        if stops is not None:
            if (self.queue, self.id) in stops.jobs:
                return "cancelled"
            if stops.everybody:
                return "shutdown"
        if self.soft_deadline is not None and monotonic() >= self.soft_deadline:
            return "timeout"
        return None

    def checkin(self, message: str = "", progress: float | None = None) -> None:
        """Report the job's progress: a short message, and a number 0…1 (values outside are moved to the nearest limit).

        The admin shows it live.  It calls the store at most once a second and never raises if the store fails.
        """
        checkin: dict[str, Any] = {"message": clean(message, MAX_MESSAGE_BYTES), "at": int(time() * 1000)}
        if progress is not None:
            checkin["progress"] = min(max(float(progress), 0.0), 1.0) if progress == progress else 0.0
        self._pending = dumps(checkin, ensure_ascii=True).encode()
        self.flush_checkin()

    def flush_checkin(self, now: float | None = None) -> None:
        """Send the newest check-in if one is waiting and is due.  The worker calls this while the job runs."""
        now = monotonic() if now is None else now
        if self._pending is None or self._checkin is None or now - self._last_sent < CHECKIN_INTERVAL:
            return
        pending, self._pending, self._last_sent = self._pending, None, now
        try:
            held = self._checkin(self._claim, pending)
        except StoreError as error:
            # A failed progress report must never fail the job.
            logger.debug("Check-in of job %s was not stored: %s", self.id, error)
        else:
            if not held:
                # The request is for this attempt alone: the next one may run in this process.
                self._stops = StopRequests()
                self._stops.jobs.add((self.queue, self.id))


class JobContext:
    """The first argument of a job with `takes_context=True`."""

    __slots__ = ("job",)

    def __init__(self, job: RunningJob) -> None:
        self.job = job

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 for the first start."""
        return self.job.attempt

    @property
    def context(self) -> SimpleNamespace:
        """What middleware stored for this attempt."""
        return self.job.context

    @property
    def should_stop(self) -> bool:
        """True once the job should end early; `stop_reason` says why."""
        return self.job.should_stop

    @property
    def stop_reason(self) -> StopReason | None:
        """None | "cancelled" | "shutdown" | "timeout"; see RunningJob.stop_reason."""
        return self.job.stop_reason

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job; () if it has none."""
        return self.job.tags

    @property
    def token(self) -> int:
        """Grows with every later claim in this queue: other systems can refuse calls of an older attempt."""
        return self.job.token

    def checkin(self, message: str = "", progress: float | None = None) -> None:
        """Report the job's progress; see RunningJob.checkin."""
        self.job.checkin(message, progress)


running: ContextVar[RunningJob | None] = ContextVar("django_jobs_running", default=None)


def current_job() -> RunningJob | None:
    """Return the job in which this code runs, or None.  Works anywhere in the call stack of a job, sync or async."""
    return running.get()
