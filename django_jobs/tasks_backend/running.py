"""What happens round a task's function in the worker: the context, Django's signals, a JSON result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django_jobs import registry
from django_jobs.context import RunningJob, current_job
from django_jobs.exceptions import Discard, Fail, Retry, Snooze
from django_jobs.results import dump_result
from django_jobs.tasks_backend.compat import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from django_jobs.tasks_backend.results import error_of, result_of_running


def wrap(task: Task[Any, Any]) -> Callable[..., Any]:
    """The function that the worker calls for this task; called outside a worker it is the task's own."""
    func = task.func

    if inspect.iscoroutinefunction(func):

        @wraps(func)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with _attempt(task, args, kwargs) as (result, ends):
                first: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
                return ends(_as_django_has_it(await func(*first, *args, **kwargs)))

        return _with_signature(run_async, task)

    @wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _attempt(task, args, kwargs) as (result, ends):
            first: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
            return ends(_as_django_has_it(func(*first, *args, **kwargs)))

    return _with_signature(run, task)


class UnusableReturnValue(Fail, TypeError):
    """The task returned what JSON cannot hold.  Django's rule: it has failed; it has done its work, so once."""


def _as_django_has_it(value: Any) -> Any:
    try:
        returned = normalize_json(value)
    except BaseException as error:  # an encoder of the value's own may raise anything
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
    """The context is ours to give: whoever enqueues does not pass it."""
    signature = inspect.signature(task.func)
    if task.takes_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


@contextmanager
def _attempt(
    task: Task[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Iterator[tuple[TaskResult[Any, Any], Callable[[Any], Any]]]:
    """One attempt: task_started before it, task_finished after its last, inside the `except` block so that Django's own
    receiver can log the traceback."""
    job = current_job()
    if job is None:
        raise RuntimeError(f"{task.module_path} runs outside a job: use task.call() to run a task here and now.")
    backend = type(task.get_backend())
    result = result_of_running(task, job, args, kwargs)
    returned: list[Any] = []

    def ends(value: Any) -> Any:
        returned.append(value)
        return value

    task_started.send(sender=backend, task_result=result)
    try:
        yield result, ends
    except BaseException as error:
        if _is_last(job, error):
            _finish(result, TaskResultStatus.FAILED, error)
            task_finished.send(sender=backend, task_result=result)
        raise
    _finish(result, TaskResultStatus.SUCCESSFUL, None)
    object.__setattr__(result, "_return_value", returned[0] if returned else None)
    task_finished.send(sender=backend, task_result=result)


def _finish(result: TaskResult[Any, Any], status: TaskResultStatus, error: BaseException | None) -> None:
    """Django's results are frozen in name; its own backends write them like this, too."""
    from django.utils import timezone

    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    if error is not None:
        result.errors.append(error_of(error))


def _is_last(job: RunningJob, error: BaseException) -> bool:
    """Will no attempt follow?  outcome.py decides; here it is only about whom to tell."""
    if isinstance(error, Snooze):
        return registry.get(job.name).delivery == "at_most_once"
    if isinstance(error, Retry):
        return job.attempt >= job.max_attempts
    return isinstance(error, (Fail, Discard)) or job.attempt >= job.max_attempts
