"""A handle for one job: what enqueue returns and `get_job` finds.

Long because a handle is one class, and callers look for all that it can do in one place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, Generic, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.context import current_job
from django_jobs.core.definition import stores_result
from django_jobs.core.values import FINISHED, Added, Attempt, JobInfo, State
from django_jobs.exceptions import (
    CorruptRecord,
    JobFailed,
    JobNotFound,
    JobsError,
    NewerRecord,
    StoreUnavailable,
    UnknownJob,
)
from django_jobs.runtime.async_twin import async_twin
from django_jobs.serialization.arguments import needs_database
from django_jobs.serialization.record import decode, name_of, tags_of
from django_jobs.serialization.results import MissingResult, load_result
from django_jobs.stores import get_store
from django_jobs.stores.ran_here import ran_here
from django_jobs.stores.values.answers import End

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from django_jobs.stores.redis import Store

    #: What the function of the job returns; a handle from `get_job` does not know it.
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")

#: Handle states that are not states of a job: the job is not stored yet, or was not stored.
DEFERRED, DUPLICATE, FULL = "deferred", "duplicate", "full"
#: Seconds after which a caller that waits looks again for a job that is on its way to another queue: at first; at most.
#: While the job is on its way, each pause is twice the one before.
_SOON, _LATE = 0.05, 1.0
#: Why the attempt of a cancelled job was ended.
TERMINATED = "The job was cancelled, and its attempt was ended."


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
    #: its row in the outbox; None = it has none.
    kept: outbox.Kept | None = None
    _info: JobInfo | None = None
    #: the store cannot add anything: the job ran where it was enqueued, or was cancelled before it was sent.
    _is_final: bool = False

    def __repr__(self) -> str:
        return f"<JobHandle {self.name} {self.id} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and (self.id, self.queue) == (other.id, other.queue)

    def __hash__(self) -> int:
        return hash(self.id)  # the job may move to another queue

    # -- looking -------------------------------------------------------------

    def refresh(self) -> JobHandle[V]:
        """Read the job from the store again, and return this handle.

        Raises JobNotFound if it is not there (any more).  A handle that is deferred, duplicate or full does not change;
        nor does the handle of a job that ran alone where it was enqueued (EAGER) or was cancelled before its commit.
        """
        if self._is_final or self.state in (DUPLICATE, FULL) or self.is_leaving():
            return self
        if self.state != DEFERRED:
            self._see(None)
        elif self.kept is not None:
            with suppress(StoreUnavailable, JobNotFound):  # else a worker has sent it
                self._see(None)
        return self

    arefresh = async_twin(refresh)

    def _see(self, info: JobInfo | None) -> None:
        info = info or _known_in(self.queue, self.id)
        if info is None and self.state != DEFERRED:  # its queue may have forgotten by now where a retry has moved it
            info = _known(self.id)
        if info is None:
            raise _not_found(self.id)
        is_duplicate = info.id != self.id
        self.show(info)
        if is_duplicate:  # a worker has sent it from the outbox, and another job had its unique key
            self.id, self.state, self._info = info.id, DUPLICATE, None

    @property
    def store(self) -> Store:
        """The store that has the job."""
        return ran_here().store_of(self.id) or get_store()

    def show(self, info: JobInfo, *, final: bool = False) -> None:
        """Take over a JobInfo that was read elsewhere; `final`: it can never change again."""
        self._info, self.state, self.queue = info, info.state, info.queue
        # A call with the id of another type's job has a handle for that job.
        self.name = name_of(info.record) or self.name
        self._is_final = final or ran_here().is_over(info.id)

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
        if info.result and (info.result != b"null" or self._stores_result(info.record)):
            return cast("V | MissingResult", load_result(info.result))
        if info.state is not State.SUCCEEDED:
            return None
        if not info.record:
            return MissingResult("The job succeeded, but it has left the history with its result (HISTORY).")
        if not self._stores_result(info.record):
            return MissingResult("The job has keep_result=0, so its result is never stored.")
        return None

    def _stores_result(self, record: bytes) -> bool:
        try:
            return stores_result(decode(self.id, self.queue, record), registry.get(self.name))
        except (CorruptRecord, NewerRecord, UnknownJob):
            return True  # nobody here knows better

    @property
    def result_missing(self) -> str | None:
        """Why the result is missing, as of the last read; None if it is not."""
        result = self.result
        return result.reason if isinstance(result, MissingResult) else None

    @property
    def error(self) -> str | None:
        """How the last failed attempt ended ("ValueError: no such order"), as of the last read; None if none failed."""
        attempts = self._seen().attempts
        return attempts[-1].said if attempts else None

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
        Raises JobFailed at once if the job was not stored, or waits for its commit; JobsError if it is called inside a
        job, where it would keep a thread from the work that it waits for.  A job whose row is in the outbox after the
        commit is waited for, until a worker has sent it and it has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0
        while (end := self._begin(deadline, timeout)) is not None:
            try:
                refuse_in_job(f"job {self.name} {self.id}")
                if not wait([end], _left(self, deadline, timeout)).done:
                    raise self._too_late(timeout)
                if (heard := self._hear(end.result(), pause)) is None:
                    break
                pause = heard
            finally:
                end.cancel()
            time.sleep(_pause(self, deadline, timeout, pause))
        return cast("V", self.result)

    def _begin(self, deadline: float | None, timeout: float | None) -> End | None:
        """Read the job, and begin to wait.  Returns None if it has succeeded."""
        if self._look():
            return None
        _left(self, deadline, timeout)
        return self.store.end_of(self.queue, self.id)

    def _hear(self, info: JobInfo | None, paused: float) -> float | None:
        """Do the same as `_look`, with a JobInfo that was delivered.  Returns None if the job has succeeded; else the
        seconds until it is to be read again: more than after the last time (`paused`) if it is still on its way."""
        before = self.queue
        if info is None:
            self.refresh()
        else:
            self._see(info)
        if self._has_succeeded():
            return None
        is_underway = info is None and self.queue == before
        return min(max(2 * paused, _SOON), _LATE) if is_underway else 0.0

    def _too_late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"Job {self.name} {self.id} is {self.state} after {timeout} s.")

    def _look(self) -> bool:
        """Return whether it has succeeded.  Raises JobFailed if it has ended otherwise, or was not stored, and
        JobNotFound."""
        self.refresh()
        if self.state in (DUPLICATE, FULL):
            raise JobFailed(f"Job {self.name} {self.id} was not stored: {self.state}.")
        if self.state == DEFERRED and (self.kept is None or not self.kept.is_left_to_workers()):
            raise JobFailed(
                f"Job {self.name} {self.id} is deferred: it is enqueued when its transaction commits, and not at all "
                "after a rollback. Wait for it after the atomic() block."
            )
        if self.state == DEFERRED and self.kept is not None and not self.kept.exists():
            self.state = State.QUEUED  # it was sent after the look into the store, or its row was deleted
            self._see(None)
        return self._has_succeeded()

    def _has_succeeded(self) -> bool:
        if self.state in FINISHED and self.state != State.SUCCEEDED:
            raise JobFailed(f"Job {self.name} {self.id} ended as {self.state}: {self.error or 'no error is kept'}")
        return self.state == State.SUCCEEDED

    def cancel(self, *, terminate: bool = False) -> bool:
        """Cancel a waiting job; ask a running one to stop.  Returns True if the job is cancelled now.

        A running job is asked to stop (`ctx.should_stop`) and ends as cancelled unless it succeeds; `refresh()`
        shows which.  With `terminate`, it is cancelled at once, and its process is ended, as at its time limit.

        The handle of a duplicate has the id of the job that holds the unique key: that job is cancelled.

        A job that waits for its commit is never sent, and leaves no trace in the store.  If it has a row in the outbox,
        a rollback of the block that cancelled it undoes that, and `refresh()` shows it."""
        if self._is_final or self.is_leaving():
            return self.state == State.CANCELLED
        if self.state != DEFERRED or (self.kept is not None and not self.kept.leave(self._left_outbox)):
            self._cancel_stored(terminate=terminate)
        elif self.kept is None or self.kept.is_leaving:
            self.state, self._is_final = State.CANCELLED, self.kept is None
        return self.state == State.CANCELLED

    acancel = async_twin(cancel)

    def _cancel_stored(self, *, terminate: bool = False) -> None:
        answers = self.store.cancel(self.queue, [self.id])
        if not answers:
            with suppress(JobNotFound):
                self._see(None)
                answers = {} if self.state == DUPLICATE else self.store.cancel(self.queue, [self.id])
        if self.id in answers:
            self.state, self._info = answers[self.id], None
        if terminate and self.state == State.RUNNING:
            # Its attempt may have failed meanwhile: a job that waits for a retry is cancelled as well.
            ended = self.store.kill(self.queue, [self.id], TERMINATED, State.CANCELLED)
            self.state = State.CANCELLED if ended else self.state

    def is_leaving(self, *, at_commit: bool = False) -> bool:
        """Return whether its row was deleted in a transaction that is open.  After a rollback it is deferred again."""
        if self.kept is not None and self.kept.has_come_back(at_commit=at_commit):
            self.state = DEFERRED
        return self.kept is not None and self.kept.is_leaving

    def _left_outbox(self) -> None:
        """Its row is deleted for good.  If a worker had read it before, the store has the job, or must refuse it."""
        self.state, self._is_final = State.CANCELLED, True
        if self.kept is not None and self.kept.is_committed:
            with suppress(StoreUnavailable):
                if self.id not in get_store().void(self.queue, [self.id]):
                    self.state, self._is_final = DEFERRED, False
                    self._cancel_stored()

    async def await_result(self, timeout: float | None = None) -> V:
        """Async twin of `wait` (Python keeps the word `await` for itself)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0
        # A read needs a thread until the store answers; no thread is held after that.  The outbox is read as everything
        # else in the database: on Django's thread for sync code.
        on_djangos = self.kept is not None
        begin = sync_to_async(self._begin, thread_sensitive=on_djangos)
        while (end := await begin(deadline, timeout)) is not None:
            try:
                told, _ = await asyncio.wait([asyncio.wrap_future(end)], timeout=_left(self, deadline, timeout))
                if not told:
                    raise self._too_late(timeout)
                info = told.pop().result()
                # If the job has left, `_hear` asks the store again, which must not happen on the event loop.
                hear = sync_to_async(self._hear, thread_sensitive=on_djangos) if info is None else self._hear
                given = hear(info, pause)
                if (heard := await given if isawaitable(given) else given) is None:
                    break
                pause = heard
            finally:
                end.cancel()
            await asyncio.sleep(_pause(self, deadline, timeout, pause))
        if self._info is not None and needs_database(self._info.result or b""):  # a model instance is loaded
            return cast("V", await sync_to_async(lambda: self.result)())
        return cast("V", self.result)


def _left(handle: JobHandle, deadline: float | None, timeout: float | None) -> float | None:
    """Return the seconds until the deadline.  Raises TimeoutError when it has passed."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise handle._too_late(timeout)
    return left if left is None else min(left, TIMEOUT_MAX)


def _pause(handle: JobHandle, deadline: float | None, timeout: float | None, pause: float) -> float:
    """Return `pause`, or the seconds until the deadline if they are fewer.  Raises TimeoutError when it has passed."""
    left = _left(handle, deadline, timeout)
    return pause if left is None else min(pause, left)


def get_job(id: str | UUID, queue: str | None = None) -> JobHandle:
    """Return a handle for the job with that id, from the archive if it has left the history.  Raises JobNotFound.  With
    `queue`, only that queue is searched.

    If the job of a call with a `job_id`, or from the outbox, was a duplicate, its id finds the job that has the key.
    The archive and the outbox are in the database: in async code, use `aget_job`."""
    id = str(id)

    def stored_job() -> JobHandle | None:
        info = _known(id) if queue is None else _known_in(queue, id)
        if info is None:
            return None
        handle = JobHandle(info.id, name_of(info.record), info.queue)
        handle.show(info)
        return handle

    handle = outbox.accepted(stored_job, lambda: _kept_job(id, queue)) or _archived_job(id, queue)
    if handle is None:
        raise _not_found(id)
    return handle


aget_job = async_twin(get_job)


def _archived_job(id: str, queue: str | None) -> JobHandle | None:
    """Return a handle for a job that has left the store, as it ended; None if there is none.  Raises DatabaseError."""
    if get_settings().archive is None:
        return None
    from django_jobs import archive  # its models need the apps, and a module of jobs may be imported before them

    try:
        info = archive.find(id, queue)
    except SynchronousOnlyOperation:
        raise SynchronousOnlyOperation(
            "The store does not have the job. Whether the archive has it must be read from the database: in async "
            "code, use aget_job."
        ) from None
    if info is None:
        return None
    handle = JobHandle[Any](info.id, name_of(info.record), info.queue)
    handle.show(info, final=True)
    return handle


def _kept_job(id: str, queue: str | None = None) -> JobHandle | None:
    """Return a handle for a job that is still in the outbox; None if there is none.  Raises DatabaseError."""
    row = _kept_row(id, "data")
    if row is None or queue not in (None, row.queue):
        return None
    kept = outbox.Kept(row.token, get_settings().database)
    kept.is_committed = True  # a worker may have read it
    return JobHandle(row.key, row.name, row.queue, DEFERRED, kept=kept)


def find_accepted(id: str) -> JobInfo | None:
    """Return the job with that id in the store or, as a job that waits, in the outbox; None if there is none."""
    return outbox.accepted(lambda: find(id) or _holder(id, list(get_settings().queues)), lambda: _kept_info(id))


def _kept_info(id: str) -> JobInfo | None:
    row = _kept_row(id)
    with suppress(outbox.UnreadableRow):
        if row is not None and (new := outbox.unpack(row).new) is not None:
            return JobInfo(row.key, row.queue, new.record, State.QUEUED)
    return None


def _kept_row(id: str, *deferred: str) -> Any:
    return outbox.find_row(*deferred, kind=outbox.EntryKind.JOB, key=id)


def find(id: str) -> JobInfo | None:
    """Return the job with that id, in whatever queue it is; None if there is none."""
    if (info := ran_here().find(id)) is not None:
        return info
    store, configured = get_store(), list(get_settings().queues)
    # Others: those that patterns cover, and those that were removed from the settings before their last job left.
    return store.find(configured, id) or store.find([q for q in store.queues() if q not in configured], id)


def _known(id: str) -> JobInfo | None:
    """Return what is known of a job in any queue."""
    info, queues = find(id), get_settings().queues
    if info is None:
        names = dict.fromkeys([*queues, *(name for name in get_store().queues() if name in queues)])
        info = _holder(id, list(names)) or next((left for name in names if (left := _left_behind(name, id))), None)
    return info


def _known_in(queue: str, id: str) -> JobInfo | None:
    if (info := ran_here().find(id)) is not None:
        return info
    return get_store().find([queue], id) or _holder(id, [queue]) or _left_behind(queue, id)


def _holder(id: str, queues: Sequence[str]) -> JobInfo | None:
    """Return the job that had the unique key when the job with this id was sent: its caller has the id, because that
    was found out at the commit or later."""
    taken = get_store().taken_by(queues, id)
    return None if taken is None else get_store().find([taken[0]], taken[1])


def _left_behind(queue: str, id: str) -> JobInfo | None:
    """Return the last known state of a job that has left the store."""
    if get_store().has_returned_none(queue, id):
        return JobInfo(id, queue, b"", State.SUCCEEDED, result=b"null")
    return None


def _not_found(id: str) -> JobNotFound:
    return JobNotFound(
        f"There is no job with the id {id!r}. It may have left the history (HISTORY, DEAD) or been deleted."
    )


def refuse_in_job(what: str) -> None:
    """Raise JobsError inside a job.  If jobs could wait like this on all threads, none would be left to run `what`."""
    if (me := current_job()) is not None:
        raise JobsError(
            f"{me.name} waits for {what} on a thread that runs jobs. Let a workflow go on instead (chain, on_success), "
            "or make the job `async def` and use `await handle.await_result()`, which occupies no thread."
        )
