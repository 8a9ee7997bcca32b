"""What can be prepared for a job definition before its first job runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from time import monotonic
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from django_jobs.conf import get_settings
from django_jobs.core.context import JobContext, RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.exceptions import Fail
from django_jobs.middleware import Handler, Middleware, is_async_capable, wrap
from django_jobs.runtime import forks
from django_jobs.serialization.model_references import load_references


class Plan:
    """How jobs of one definition run.

    `call(running_job)` calls the function through the middleware.  With `on_loop` it returns an awaitable and must be
    called on an event loop.  Otherwise it blocks, also for an async function whose middleware cannot run on a loop.
    """

    __slots__ = ("call", "definition", "is_async", "on_loop", "options", "settings")

    def __init__(
        self,
        definition: JobDefinition,
        middleware: Sequence[Middleware],
        run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        #: the options that they led to are part of the plan.
        self.settings = get_settings()
        self.definition, self.options = definition, definition.options
        self.is_async = definition.is_async
        self.on_loop = definition.is_async and is_async_capable(middleware)
        innermost = _innermost(definition, run_coroutine)
        if self.is_async and not self.on_loop:
            self.call = wrap(lambda job: run_coroutine(innermost(job)), middleware)
        else:
            self.call = wrap(innermost, middleware)


def _innermost(definition: JobDefinition, run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]) -> Handler:
    """Return the handler that calls the function.  It loads model instances first, after every middleware has begun."""
    func, takes_context, on_missing = definition.func, definition.takes_context, definition.on_missing

    def call(job: RunningJob) -> Any:
        if job.has_references:
            _load_references(job, on_missing)
        try:
            value = func(JobContext(job), *job.args, **job.kwargs) if takes_context else func(*job.args, **job.kwargs)
            return value if value is None or type(value) not in _NOT_RUN else _run_now(value, func, run_coroutine)
        finally:
            if forks.is_copy:
                forks.leave()

    async def load_and_call(job: RunningJob) -> Any:
        await sync_to_async(_load_references)(job, on_missing)
        return await call_async(job, watched=True)

    def call_async(job: RunningJob, *, watched: bool = False) -> Any:
        if job.soft_deadline is not None and not watched:
            return _cancelled_in_time(job, job.soft_deadline, call_async(job, watched=True))
        if job.has_references:
            return load_and_call(job)
        try:
            return func(JobContext(job), *job.args, **job.kwargs) if takes_context else func(*job.args, **job.kwargs)
        finally:
            if forks.is_copy:
                forks.leave()

    return call_async if definition.is_async else call


def _load_references(job: RunningJob, on_missing: str) -> None:
    job.args = load_references(job.args, on_missing)
    job.kwargs = load_references(job.kwargs, on_missing)
    job.has_references = False


#: Types of values whose code may not have run yet.
_NOT_RUN = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})


def _run_now(value: Any, func: Callable[..., Any], run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    """Run the coroutine that a wrapper returned.  Raises Fail for the generator of a wrapped generator function."""
    if type(value) is CoroutineType:
        return run_coroutine(value)
    code = getattr(value, "gi_code", None) or getattr(value, "ag_code", None)
    if code is getattr(inspect.unwrap(func), "__code__", None):
        raise Fail(
            "The function is a generator in a wrapper: none of its code has run. Remove yield, or loop over it there."
        )
    return value


async def _cancelled_in_time(job: RunningJob, deadline: float, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await an async function, and cancel it when its soft limit is over.  If it returns in spite of that, its value is
    the result."""
    limit = asyncio.timeout(deadline - monotonic())
    try:
        async with limit:
            return await coroutine
    except TimeoutError as error:
        # An error of asyncio has no text.  In the first Pythons 3.11 it names the cancellation only as its context.
        origin = error.__cause__ or error.__context__
        if error.args or not limit.expired() or not isinstance(origin, asyncio.CancelledError):
            raise
        raise TimeoutError(
            f"The attempt ran longer than its soft_timeout of {job.soft_timeout:g} s and was cancelled."
        ) from None


def run_coroutine_here(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a process without a worker's event loop; sync_to_async in it uses this thread."""
    begun: list[asyncio.Task[Any] | None] = []

    async def wait() -> Any:
        begun.append(asyncio.current_task())
        return await coroutine

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return async_to_sync(wait)()
        except BaseException:
            # If this thread was interrupted (time limit, Ctrl-C), the coroutine goes on in another one, for which the
            # process would wait at its end.
            for task in filter(None, begun):
                with suppress(RuntimeError):  # its loop is closed: it has ended
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise
    # A loop runs on this thread and is blocked by this call, so the coroutine needs another thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()
