"""A handle for one job: what enqueue returns and `get_job` finds."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import wait
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, cast
from uuid import UUID

from asgiref.sync import sync_to_async

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import FINISHED, Added, Attempt, JobInfo, State
from django_jobs.exceptions import JobFailed, JobNotFound
from django_jobs.runtime.async_twin import async_twin
from django_jobs.serialization.record import tags_of
from django_jobs.serialization.results import MissingResult, load_result
from django_jobs.stores import get_store
from django_jobs.stores.values.answers import End

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: What the function of the job returns; a handle from `get_job` does not know it.
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")

#: Handle states that are not states of a job: the job is not stored yet, or was not stored.
DEFERRED, DUPLICATE, FULL = "deferred", "duplicate", "full"


@dataclass(slots=True, eq=False, repr=False)
class JobHandle(Generic[V]):
    """One job, as last read from the store.  `refresh()` reads it again; `wait()` waits until it has ended.

    `state` is one of the nine states, or "deferred" (waits for the commit), "duplicate" (an equal job waits already) or
    "full" (the queue had no room).  Jobs with the last two were not stored.
    """

    id: str
    name: str
    queue: str
    state: str = State.QUEUED
    #: the store's answer; None until it was asked.
    added: Added | None = None
    _info: JobInfo | None = None
    #: the store cannot add anything: the job ran where it was enqueued, or was cancelled before it was sent.
    _is_final: bool = False

    def __repr__(self) -> str:
        return f"<JobHandle {self.name} {self.id} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    # -- looking -------------------------------------------------------------

    def refresh(self) -> JobHandle[V]:
        """Read the job from the store again, and return this handle.

        Raises JobNotFound if it is not there (any more).  A handle that is deferred, duplicate or full does not change;
        nor does the handle of a job that ran where it was enqueued (EAGER) or was cancelled before its commit.
        """
        if self._is_final or self.state in (DEFERRED, DUPLICATE, FULL):
            return self
        self._see(get_store().get(self.queue, self.id))
        return self

    arefresh = async_twin(refresh)

    def _see(self, info: JobInfo | None) -> None:
        if info is None:
            info = _left_behind(self.queue, self.id)
        if info is None:
            raise _not_found(self.id)
        self._info, self.state = info, info.state

    def show(self, info: JobInfo, *, final: bool = False) -> None:
        """Take over a JobInfo that was read elsewhere; `final`: it can never change again."""
        self._info, self.state, self._is_final = info, info.state, final

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job, as of the last read; () once the job has left the history."""
        return tags_of(self._seen().record)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that did not succeed, oldest first, as of the last read."""
        return self._seen().attempts

    @property
    def result(self) -> V | MissingResult | None:
        """What the function returned, as of the last read; None if the job has not succeeded.

        If the returned value could not be stored or is not kept: a MissingResult, which is false and says why."""
        info = self._seen()
        if info.result:
            return cast("V | MissingResult", load_result(info.result))
        if info.state is not State.SUCCEEDED:
            return None
        if not info.record:
            return MissingResult("The job succeeded, but it has left the history with its result (HISTORY).")
        if registry.knows(self.name) and registry.get(self.name).keep_result == 0:
            return MissingResult("The job has keep_result=0, so its result is never stored.")
        return None

    @property
    def result_missing(self) -> str | None:
        """Why the result is missing, as of the last read; None if it is not."""
        result = self.result
        return result.reason if isinstance(result, MissingResult) else None

    @property
    def error(self) -> str | None:
        """How the last failed attempt ended ("ValueError: no such order"), as of the last read; None if none failed."""
        attempts = self._seen().attempts
        if not attempts:
            return None
        last = attempts[-1]
        return f"{last.error_name}: {last.error}" if last.error_name else last.error or last.outcome

    @property
    def checkin(self) -> dict[str, Any] | None:
        """The last check-in of the running job (`message`, `progress` 0…1, `at` in ms) or None, as of the last read."""
        return self._seen().checkin

    def _seen(self) -> JobInfo:
        if self._info is None:
            self.refresh()
        return self._info or JobInfo(self.id, self.queue, b"", State.QUEUED)

    # -- waiting and acting --------------------------------------------------

    def wait(self, timeout: float | None = None) -> V:
        """Wait until the job has ended and return its result.

        Raises JobFailed if it ended as dead, cancelled or expired, TimeoutError after `timeout` seconds (None = never),
        JobNotFound if it has left the store (a succeeded job stays for at least a minute, whatever it returned).
        Raises JobFailed at once if the job was not stored, or not yet.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (end := self._begin(deadline, timeout)) is not None:
            try:
                if not wait([end], _left(self, deadline, timeout)).done:
                    raise self._too_late(timeout)
                if self._hear(end.result()):
                    break
            finally:
                end.cancel()
        return cast("V", self.result)

    def _begin(self, deadline: float | None, timeout: float | None) -> End | None:
        """Read the job, and begin to wait.  Returns None if it has succeeded."""
        if self._look():
            return None
        _left(self, deadline, timeout)
        return get_store().end_of(self.queue, self.id)

    def _hear(self, info: JobInfo | None) -> bool:
        """Do the same as `_look`, with a JobInfo that was delivered."""
        self._see(info)
        return self._has_succeeded()

    def _too_late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"Job {self.name} {self.id} is {self.state} after {timeout} s.")

    def _look(self) -> bool:
        """Return whether it has succeeded.  Raises JobFailed if it has ended otherwise, or was not stored."""
        if self.state in (DUPLICATE, FULL):
            raise JobFailed(f"Job {self.name} {self.id} was not stored: {self.state}.")
        if self.state == DEFERRED:
            raise JobFailed(
                f"Job {self.name} {self.id} is deferred: it is enqueued when its transaction commits, and not at all "
                "after a rollback. Wait for it after the atomic() block."
            )
        self.refresh()
        return self._has_succeeded()

    def _has_succeeded(self) -> bool:
        if self.state in FINISHED and self.state != State.SUCCEEDED:
            raise JobFailed(f"Job {self.name} {self.id} ended as {self.state}: {self.error or 'no error is kept'}")
        return self.state == State.SUCCEEDED

    def cancel(self) -> bool:
        """Cancel a waiting job; ask a running one to stop.  Returns True if the job is cancelled now.

        A running job is asked to stop (`ctx.should_stop`) and ends as cancelled unless it succeeds; `refresh()`
        shows which.  A job that waits for its commit is never sent, and leaves no trace in the store."""
        if self.state == DEFERRED:
            self.state, self._is_final = State.CANCELLED, True
        if self._is_final:
            return self.state == State.CANCELLED
        answers = get_store().cancel(self.queue, [self.id])
        if self.id in answers:
            self.state, self._info = answers[self.id], None
        return self.state == State.CANCELLED

    acancel = async_twin(cancel)

    async def await_result(self, timeout: float | None = None) -> V:
        """Async twin of `wait` (Python keeps the word `await` for itself)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # A read needs a thread until the store answers; no thread is held after that.
        begin = sync_to_async(self._begin, thread_sensitive=False)
        while (end := await begin(deadline, timeout)) is not None:
            try:
                told, _ = await asyncio.wait([asyncio.wrap_future(end)], timeout=_left(self, deadline, timeout))
                if not told:
                    raise self._too_late(timeout)
                info = told.pop().result()
                # If the job has left, `_hear` asks the store again, which must not happen on the event loop.
                hear = sync_to_async(self._hear, thread_sensitive=False) if info is None else self._hear
                has_succeeded = hear(info)
                if await has_succeeded if isawaitable(has_succeeded) else has_succeeded:
                    break
            finally:
                end.cancel()
        return cast("V", self.result)


def _left(handle: JobHandle, deadline: float | None, timeout: float | None) -> float | None:
    """Return the seconds until the deadline.  Raises TimeoutError when it has passed."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise handle._too_late(timeout)
    return left


def get_job(id: str | UUID, queue: str | None = None) -> JobHandle:
    """Return a handle for the job with that id.  Raises JobNotFound.  With `queue`, only that queue is searched."""
    from django_jobs.serialization.record import name_of

    store, id = get_store(), str(id)
    if queue is not None:
        info = store.get(queue, id) or _left_behind(queue, id)
    else:
        configured = list(get_settings().queues)
        # A queue may have been removed from the settings before its last job left it.
        info = store.find(configured, id) or store.find([q for q in store.queues() if q not in configured], id)
        info = info or next((left for name in configured if (left := _left_behind(name, id))), None)
    if info is None:
        raise _not_found(id)
    handle = JobHandle(info.id, name_of(info.record), info.queue)
    handle.show(info)
    return handle


aget_job = async_twin(get_job)


def _left_behind(queue: str, id: str) -> JobInfo | None:
    """Return the last known state of a job that has left the store."""
    if get_store().has_returned_none(queue, id):
        return JobInfo(id, queue, b"", State.SUCCEEDED, result=b"null")
    return None


def _not_found(id: str) -> JobNotFound:
    return JobNotFound(
        f"There is no job with the id {id!r}. It may have left the history (HISTORY, DEAD) or been deleted."
    )
