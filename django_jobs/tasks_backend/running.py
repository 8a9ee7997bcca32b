"""Wraps a task's function in a worker: passes the context and makes the result plain JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async

from django_jobs.core.context import RunningJob, current_job
from django_jobs.core.values import Attempt
from django_jobs.exceptions import Fail, StoreError
from django_jobs.serialization.results import dump_result
from django_jobs.stores import get_store
from django_jobs.tasks_backend.compat import Task, TaskContext, TaskResult
from django_jobs.tasks_backend.plain import as_json_makes_it
from django_jobs.tasks_backend.results import result_of_running

#: Attributes of the attempt's context: its TaskResult when it began, and what the function returned.
BEGAN, RETURNED = "_task_result", "_task_returned"


def wrap(task: Task[Any, Any]) -> Callable[..., Any]:
    """Return the function that the worker calls for this task; outside a worker it is the task's own function."""
    func = task.func

    if inspect.iscoroutinefunction(func):

        @wraps(func)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            job = _job_of(task)
            # The outcomes of earlier attempts are read from the store, which must not block the event loop.
            begin = _begin if job.attempt == 1 else sync_to_async(_begin, thread_sensitive=False)
            begun = begin(task, job, args, kwargs)
            result = await begun if inspect.isawaitable(begun) else begun
            return _ends(job, await func(*_context(task, result), *args, **kwargs))

        return _with_signature(run_async, task)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        job = _job_of(task)
        result = _begin(task, job, args, kwargs)
        return _ends(job, func(*_context(task, result), *args, **kwargs))

    return _with_signature(run, task)


class UnusableReturnValue(Fail, TypeError):
    """The task returned what JSON cannot hold.  By Django's rule it has failed; it has run, so it is not retried."""


def attempts_before(job: RunningJob) -> tuple[Attempt, ...]:
    """Return the attempts before this one; none if the store does not answer."""
    if job.attempt == 1:
        return ()
    try:
        info = get_store().get(job.queue, job.id)
    except StoreError:
        return ()
    return info.attempts[: job.attempt - 1] if info else ()


def _job_of(task: Task[Any, Any]) -> RunningJob:
    job = current_job()
    if job is None:
        raise RuntimeError(
            f"{task.module_path} is called outside a job. Use task.call() to run a task at once in this process."
        )
    return job


def _begin(
    task: Task[Any, Any], job: RunningJob, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TaskResult[Any, Any]:
    before = attempts_before(job)
    # A separate TaskResult for the signal at the end: the function may change its arguments.
    setattr(job.context, BEGAN, result_of_running(task, job, args, kwargs, before))
    return result_of_running(task, job, args, kwargs, before)


def _context(task: Task[Any, Any], result: TaskResult[Any, Any]) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


def _ends(job: RunningJob, value: Any) -> Any:
    returned = _as_django_has_it(value)
    setattr(job.context, RETURNED, returned)
    return returned


def _as_django_has_it(value: Any) -> Any:
    try:
        returned = as_json_makes_it(value)
    except BaseException as error:  # an encoder in the value may raise anything
        kind = type(value)
        raise UnusableReturnValue(
            f"The task returned a {kind.__module__}.{kind.__qualname__}: JSON cannot hold it ({type(error).__name__}). "
            "Return plain values. The task is not run again."
        ) from error
    _, why = dump_result(returned)
    if why:
        raise UnusableReturnValue(f"{why} The task is not run again.")
    return returned


def _with_signature(run: Callable[..., Any], task: Task[Any, Any]) -> Callable[..., Any]:
    """Set the signature without the context: the worker passes it, not the caller."""
    signature = inspect.signature(task.func)
    if task.takes_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run
