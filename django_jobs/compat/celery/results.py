"""`AsyncResult`, `GroupResult` and `EagerResult`: how a task stands, and what it returned."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator, Sequence
from typing import Any

from django_jobs.compat.celery.exceptions import TaskRevokedError, TimeoutError, Unsupported
from django_jobs.compat.celery.missing import OF_RESULTS
from django_jobs.compat.celery.stored import READY, STATES, drop, error_of, is_dropped, refuse_in_task, said_in, step_of
from django_jobs.core.values import FINISHED, State
from django_jobs.enqueueing.handle import DEFERRED, JobHandle, get_job
from django_jobs.exceptions import JobFailed, JobNotFound, WorkflowNotFound
from django_jobs.workflows.handle import get_workflow

#: Seconds between two looks for a step that has not started.
_PAUSE = 0.1


class Result:
    """What all results share."""

    id: str
    parent: Result | None = None

    @property
    def task_id(self) -> str:
        return self.id

    @property
    def children(self) -> Any:
        raise Unsupported("AsyncResult.children: children of a task are not recorded. Use a Batch and its steps.")

    def forget(self) -> None:
        """Do nothing: a result leaves the store by itself, and that of an eager task is in this process only."""

    def __getattr__(self, name: str) -> Any:
        remedy = OF_RESULTS.get(name)
        raise AttributeError(f"{type(self).__name__} has no {name}" + (f": {remedy}" if remedy else "."))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id


class AsyncResult(Result):
    """One task, by its id.  It reads the store each time; a task that the store does not know is PENDING."""

    def __init__(
        self, id: str, backend: Any = None, task_name: Any = None, app: Any = None, parent: Result | None = None,
        *, handle: JobHandle | None = None,
    ) -> None:  # fmt: skip
        """`backend`, `task_name` and `app` change nothing: the store knows the task."""
        self.id, self.parent, self._handle = str(id), parent, handle

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    # -- how it stands ----------------------------------------------------------

    def _seen(self) -> JobHandle | None:
        """Return the job as it is now; None if the store has none of this id."""
        try:
            if self._handle is None:
                self._handle = get_job(self.id)
            return self._handle.refresh()
        except JobNotFound:
            return None

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what `self.update_state` said."""
        job = self._seen()
        if job is None:
            return "REVOKED" if is_dropped(self.id) else "PENDING"
        said = said_in(job)
        return str(said["state"]) if said else STATES.get(job.state, "PENDING")  # type: ignore[call-overload]

    status = state

    def ready(self) -> bool:
        return self.state in READY

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    @property
    def result(self) -> Any:
        """What it returned, the error with which it ended, or the `meta` of `self.update_state`."""
        job = self._seen()
        if job is None:
            return TaskRevokedError(f"The task {self.id} was revoked.") if is_dropped(self.id) else None
        if (said := said_in(job)) is not None:
            return said["meta"]
        if job.state == State.SUCCEEDED:
            return None if job.result_missing else job.result
        return error_of(job)

    info = result

    @property
    def traceback(self) -> str | None:
        job = self._seen()
        return (job.attempts[-1].traceback or None) if job is not None and job.attempts else None

    @property
    def name(self) -> str | None:
        job = self._seen()
        return None if job is None else job.name

    @property
    def queue(self) -> str | None:
        job = self._seen()
        return None if job is None else job.queue

    # -- waiting and acting -------------------------------------------------------

    def get(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> Any:
        """Wait until it has ended, and return what it returned.

        Raises the error of the task (with `propagate=False`, it is returned), TaskRevokedError if it was revoked,
        TimeoutError after `timeout` seconds, RuntimeError inside a task.  A task that is not known may still be sent,
        so it is waited for, too; without a `timeout`, JobNotFound is raised at once: Celery would wait for ever."""
        if others := sorted(options.keys() - {"interval", "no_ack", "follow_parents", "disable_sync_subtasks"}):
            raise Unsupported(f"AsyncResult.get({others[0]}=…): write a task that comes next, with `link` or a chain.")
        refuse_in_task()
        until = None if timeout is None else time.monotonic() + timeout
        try:
            job = self._started(until)
            return job.wait(None if until is None else max(0.001, until - time.monotonic()))
        except JobFailed:
            if (found := self._seen()) is not None and found.state not in FINISHED:
                raise  # it waits for a commit
            error = self._failure()
            if not propagate:
                return error
            raise error from None
        except builtins.TimeoutError as late:
            unknown = (
                "" if self._handle is not None else " No task with this id is known: it may have left the history."
            )
            raise TimeoutError(f"The task {self.id} has not ended after {timeout} s.{unknown}") from late

    wait = get

    def _started(self, until: float | None) -> JobHandle:
        """Return the job as soon as there is one.  Raises JobNotFound, JobFailed and TimeoutError."""
        workflow, _ = step_of(self.id)
        while (job := self._seen()) is None:
            if not workflow and until is None:
                raise JobNotFound(
                    f"There is no task with the id {self.id!r}, so nothing can be waited for. It may have left the "
                    "history (HISTORY, DEAD), or have been deleted. With a timeout, get() waits until it is sent."
                )
            try:
                state = get_workflow(workflow).state if workflow else "unknown"
                if is_dropped(self.id) or state in ("stopped", "cancelled"):
                    raise JobFailed(f"The workflow {workflow} has stopped before this task.")
                if state == DEFERRED and until is None:
                    raise JobNotFound(f"The workflow {workflow} is deferred: it is sent after its commit.")
            except WorkflowNotFound as gone:
                raise JobNotFound(str(gone)) from gone
            if until is not None and time.monotonic() >= until:
                raise builtins.TimeoutError
            time.sleep(_PAUSE)
        return job

    def _failure(self) -> BaseException:
        """Return the error of this task, or of the step before it that failed."""
        job = self._seen()
        if job is None and isinstance(self.parent, AsyncResult) and not is_dropped(self.id):
            return self.parent._failure()
        return (None if job is None else error_of(job)) or TaskRevokedError(f"The task {self.id} was revoked.")

    def revoke(self, terminate: bool = False, signal: Any = None, **options: Any) -> None:
        """Cancel it.  With `terminate`, an attempt that runs is ended with its process; the signal does not matter.

        A step of a workflow whose turn has not come never starts, and nor does what comes after it."""
        if options.keys() - {"wait", "timeout", "connection"}:
            raise Unsupported(f"AsyncResult.revoke({', '.join(sorted(options))}): use terminate only.")
        if self._seen() is None and drop(self.id):
            return
        if (job := self._seen()) is not None:
            job.cancel(terminate=terminate)


class GroupResult(Result):
    """The results of a group, in the order of its tasks."""

    def __init__(self, id: str, results: Sequence[Any], parent: Result | None = None) -> None:
        self.id, self.results, self.parent = id, list(results), parent

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(map(str, self.results))}]>"

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Any:
        return self.results[index]

    def ready(self) -> bool:
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        return all(each.successful() for each in self.results)

    def failed(self) -> bool:
        return any(each.failed() for each in self.results)

    def waiting(self) -> bool:
        return not self.ready()

    def completed_count(self) -> int:
        return sum(each.successful() for each in self.results)

    def get(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """Wait until all have ended, and return what they returned: see AsyncResult.get."""
        until = None if timeout is None else time.monotonic() + timeout
        return [
            each.get(None if until is None else max(0.001, until - time.monotonic()), propagate, **options)
            for each in self.results
        ]

    join = get

    def revoke(self, terminate: bool = False, signal: Any = None) -> None:
        """Cancel all: see AsyncResult.revoke."""
        for each in self.results:
            each.revoke(terminate=terminate, signal=signal)

    @staticmethod
    def save(*_: Any, **__: Any) -> None:
        raise Unsupported("GroupResult.save(), restore(): store the ids of its results, and use AsyncResult(id).")

    restore = save


class EagerResult(Result):
    """How a task ended that ran where it was called: `task.apply()`, or task_always_eager."""

    def __init__(self, id: str, value: Any, state: str, traceback: str | None = None) -> None:
        self.id, self.result, self.state, self.traceback = id, value, state, traceback
        self.status, self.info = state, value

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    def ready(self) -> bool:
        return True

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """Return what it returned.  Raises its error (with `propagate=False`, it is returned)."""
        if self.state == "SUCCESS" or not (propagate and isinstance(self.result, BaseException)):
            return self.result
        raise self.result

    wait = get

    def revoke(self, *_: Any, **__: Any) -> None:
        """Do nothing: it has run."""
