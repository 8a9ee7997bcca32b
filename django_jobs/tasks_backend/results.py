"""A job as Django's TaskResult."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django_jobs.core import registry
from django_jobs.core.context import RunningJob
from django_jobs.core.values import Attempt, Job, JobInfo, State
from django_jobs.exceptions import CorruptRecord, UnknownJob
from django_jobs.serialization import arguments
from django_jobs.serialization.record import decode
from django_jobs.serialization.results import load_result, worker_of
from django_jobs.tasks_backend.compat import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_jobs.tasks_backend.task import TaskDefinition, unchecked

#: Entry of a job's meta for what the store does not keep exactly: microseconds, the alias, the requested time.
META = "task"

STATUS = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.QUEUED: TaskResultStatus.READY,
    State.RETRY: TaskResultStatus.READY,
    State.BLOCKED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.EXPIRED: TaskResultStatus.FAILED,
}


def meta_of(task: Task[Any, Any], enqueued_at: datetime) -> dict[str, Any]:
    """Return the meta of the job, from which its result can be read back unchanged.

    `enqueued_at` is by the producer's clock: the store's is not known yet where `enqueue` returns."""
    run_after = task.run_after.isoformat() if task.run_after else None
    return {META: {"enqueued_at": enqueued_at.isoformat(), "run_after": run_after, "backend": task.backend}}


def result_of(info: JobInfo) -> TaskResult[Any, Any]:
    """Return the TaskResult of a stored job.  Raises TaskResultDoesNotExist if it does not belong to a known task."""
    try:
        job = decode(info.id, info.queue, info.record)
        definition = registry.get(job.name)
    except (CorruptRecord, UnknownJob) as error:
        raise TaskResultDoesNotExist(info.id) from error
    if not isinstance(definition, TaskDefinition) or META not in (job.meta or {}):
        raise TaskResultDoesNotExist(info.id)
    args, kwargs = arguments.load(job.args)
    task, enqueued_at = _task_of(definition, job)
    status = STATUS[info.state]
    begun, ended = _times(info)
    failed = [entry for entry in info.attempts if entry.outcome not in ("discarded",)]
    result: TaskResult[Any, Any] = TaskResult(
        task=task,
        id=info.id,
        status=status,
        enqueued_at=enqueued_at,
        started_at=_moment(_first_start(info.attempts) or begun),
        finished_at=_moment(ended),
        last_attempted_at=_moment(begun),
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[_error(entry) for entry in failed],
        worker_ids=_workers(info, status),
    )
    if status == TaskResultStatus.SUCCESSFUL and info.result:
        object.__setattr__(result, "_return_value", load_result(info.result))
    return result


def result_of_running(
    task: Task[Any, Any],
    job: RunningJob,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    earlier: Sequence[Attempt] = (),
) -> TaskResult[Any, Any]:
    """Return the TaskResult for context and signals while an attempt runs.  `earlier`: the attempts before it."""
    before = job.attempt - 1
    names = [f"attempt-{number}" for number in range(1, before + 1 - len(earlier))]
    names += [entry.worker or f"attempt-{number}" for number, entry in enumerate(earlier, len(names) + 1)][-before:]
    said = (job.meta or {}).get(META, {})
    task = _as_stored(task, said, queue_name=job.queue)
    return TaskResult(
        task=task,
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=_parse(said.get("enqueued_at")) or job.enqueued_at,
        started_at=_moment(_first_start(earlier)) or job.claimed_at,
        finished_at=None,
        last_attempted_at=job.claimed_at,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[_error(entry) for entry in earlier if entry.outcome != "discarded"],
        worker_ids=[*(names if before else ()), job.worker or f"attempt-{job.attempt}"],
    )


def error_of(error: BaseException) -> TaskError:
    """Return an exception in the form that Django stores."""
    kind = type(error)
    text = "".join(traceback.format_exception(error))
    return TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=text)


def _task_of(definition: TaskDefinition, job: Job) -> tuple[Task[Any, Any], datetime | None]:
    """Return the task as it was enqueued, including queue, priority and time."""
    said = (job.meta or {})[META]
    run_after = _parse(said.get("run_after"))
    task = _as_stored(definition.task, said, queue_name=job.queue, priority=job.controls.priority, run_after=run_after)
    return task, _parse(said.get("enqueued_at"))


def _as_stored(task: Task[Any, Any], said: Mapping[str, Any], **fields: Any) -> Task[Any, Any]:
    """Return the task with what is stored with a job.  If TASKS no longer has its backend, the task has the one that
    runs it now."""
    if (alias := said.get("backend")) in set(task_backends):
        fields["backend"] = alias
    return unchecked(task, **fields)


def _times(info: JobInfo) -> tuple[int, int]:
    """Return when the last attempt began and when the job ended, in ms; 0 = not yet."""
    if info.state is State.RUNNING:
        return info.at, 0
    if info.state is State.SUCCEEDED:
        return info.at - max(info.run_ms, 0), info.at
    begun = 0
    if info.attempts:
        last = info.attempts[-1]
        begun = last.at - max(last.run_ms, 0)
    return begun, info.at if STATUS[info.state] == TaskResultStatus.FAILED else 0


def _first_start(attempts: Sequence[Attempt]) -> int:
    return attempts[0].at - max(attempts[0].run_ms, 0) if attempts else 0


def _workers(info: JobInfo, status: TaskResultStatus) -> list[str]:
    """Return one name per attempt: the process that ran it or, if unknown, the number of the attempt."""
    names = [entry.worker or f"attempt-{number}" for number, entry in enumerate(info.attempts, 1)]
    if status == TaskResultStatus.RUNNING:
        names.append(info.worker)
    elif status == TaskResultStatus.SUCCESSFUL:
        names.append(worker_of(info.result or b"") or f"attempt-{len(names) + 1}")
    return names


def _error(entry: Attempt) -> TaskError:
    path = entry.error_type or "django_jobs.exceptions.JobFailed"
    return TaskError(exception_class_path=path, traceback=entry.traceback or entry.error or entry.outcome)


def _moment(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _parse(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
