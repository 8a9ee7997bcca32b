"""Every error this package raises, in one tree; a docstring is the default message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class JobsError(Exception):
    """Base class of every error this package raises.  Do not raise it directly."""

    def __init__(self, message: str | None = None) -> None:
        first, _, _ = (type(self).__doc__ or "").partition("\n\n")
        super().__init__(message or " ".join(first.split()))


# -- definition and enqueue ---------------------------------------------------


class InvalidJob(JobsError, TypeError):
    """The function or its options cannot be a job."""


class InvalidArguments(JobsError, TypeError):
    """The arguments do not fit the signature of the job."""


class InvalidCron(JobsError, ValueError):
    """The cron expression is not valid, or no time ever matches it."""


class InvalidSchedule(JobsError, ValueError):
    """The schedule cannot run as it is written."""

    def __init__(self, message: str, option: str) -> None:
        #: the wrong option, for forms.
        self.option = option
        super().__init__(message)


class InvalidQuery(JobsError, ValueError):
    """The text is not a query."""

    def __init__(self, message: str, at: int) -> None:
        #: the place in the text, from 0.
        self.at = at
        super().__init__(f"At character {at + 1} of the query: {message}")


class UnknownSchedule(JobsError, LookupError):
    """There is no schedule of that name."""


class PayloadError(JobsError, ValueError):
    """An argument or a result cannot be stored as JSON."""


class InvalidWorkflow(JobsError, ValueError):
    """The steps do not make a workflow."""


class TooManySteps(InvalidWorkflow):
    """A workflow has more than 10,000 steps, or a batch more than 100,000 jobs."""


class BatchClosed(JobsError):
    """The batch takes no more jobs."""


class WorkflowNotFound(JobsError, LookupError):
    """There is no workflow or batch of that id."""


class UnknownJob(JobsError, LookupError):
    """No job of that name is registered."""


class NotKnownYet(UnknownJob):
    """No job of that name is registered, and the table of remote job types could not be read to look for it."""


class UnknownQueue(JobsError, LookupError):
    """The queue is not in DJANGO_JOBS["QUEUES"]."""


class DuplicateJob(JobsError):
    """An equal job already waits, and on_conflict is "raise"."""


class QueueFull(JobsError):
    """The queue holds MAX_LENGTH jobs; try again when some have run."""

    def __init__(self, queue: str, max_length: int, accepted: int = 0) -> None:
        self.queue, self.max_length, self.accepted = queue, max_length, accepted
        super().__init__(
            f"Queue {queue!r} is full (MAX_LENGTH is {max_length})."
            + (f" This call enqueued {accepted} of its jobs." if accepted else "")
            + " Try again later, use try_enqueue(), or raise MAX_LENGTH."
        )


# -- handles ------------------------------------------------------------------


class JobNotFound(JobsError, LookupError):
    """No job with that id is known; it may have left the history."""


class JobMoved(JobsError):
    """The state of the job does not allow this; it may have changed in the meantime."""


class JobFailed(JobsError):
    """The job ended without success."""


# -- stores -------------------------------------------------------------------


class JobIds(list[str]):
    """The ids of a call of enqueue_many, one for each item, in their order."""

    #: the ids for which the store has answered: a repeated call does not send them again.
    answered: frozenset[str] = frozenset()


class StoreError(JobsError):
    """Base class of what a store may raise."""

    #: set by enqueue_many: `enqueue_many(items, job_ids=error.job_ids)` repeats the call and adds no job twice.
    job_ids: JobIds = JobIds()


class StoreUnavailable(StoreError):
    """The store cannot be reached.  The job may or may not exist: the same job_id is safe to send again."""

    #: id of the job (or the first job) that was to be enqueued; "" if another call failed.
    job_id = ""


class StoreFull(StoreError):
    """The store has no room left (maxmemory of Redis, or the disk).  Nothing was stored."""


class StoreCorrupt(StoreError):
    """The store holds data of the wrong type; `manage.py jobs doctor` shows where."""


class StoreMisconfigured(StoreError):
    """The store refuses to work: wrong password, missing permission, or an unsuitable server."""


class StaleClaim(JobsError):
    """The claim was lost: its lease expired, or a user moved the job."""


class CorruptRecord(JobsError, ValueError):
    """The stored bytes of a job cannot be read."""


class NewerRecord(CorruptRecord):
    """A newer version of django_jobs enqueued the job, in a format that this version does not know."""


# -- raised by jobs and middleware to say what happens next --------------------


class Signal(JobsError):
    """Base class of what a job raises to say what happens next.  Do not raise it directly."""


class Retry(Signal):
    """Try again later.

    That is in `in_` seconds (None: after the job's backoff), and counts as a failed attempt.

    `args`, `kwargs`, `max_attempts` and `queue` are those of the job from now on; None = as before.  They are checked
    as `enqueue` checks them: if they are wrong, the attempt fails with the error that `enqueue` would raise."""

    def __init__(
        self,
        reason: str | None = None,
        *,
        in_: float | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        queue: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.in_ = in_
        self.new_args, self.new_kwargs, self.max_attempts, self.queue = args, kwargs, max_attempts, queue


class Snooze(Signal):
    """Run again later.

    That is in `in_` seconds, and does not count as a failure."""

    def __init__(self, reason: str | None = None, *, in_: float) -> None:
        super().__init__(reason)
        self.in_ = in_


class Discard(Signal):
    """End the job as cancelled, not as dead."""


class Fail(Signal):
    """End the job as dead, even if attempts are left."""
