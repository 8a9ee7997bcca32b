"""What can be prepared for a job definition before its first job runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import monotonic
from typing import Any

from asgiref.sync import async_to_sync

from django_jobs.conf import get_settings
from django_jobs.core.context import JobContext, RunningJob
from django_jobs.core.definition import JobDefinition
from django_jobs.middleware import Handler, Middleware, is_async_capable, wrap
from django_jobs.runtime import forks


class Plan:
    """How jobs of one definition run.

    `call(running_job)` calls the function through the middleware.  With `on_loop` it returns an awaitable and must be
    called on an event loop.  Otherwise it blocks, also for an async function whose middleware cannot run on a loop.
    """

    __slots__ = ("call", "definition", "is_async", "on_loop", "on_missing", "options", "settings")

    def __init__(
        self,
        definition: JobDefinition,
        middleware: Sequence[Middleware],
        run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        #: the options that they led to are part of the plan.
        self.settings = get_settings()
        self.definition, self.options = definition, definition.options
        self.is_async, self.on_missing = definition.is_async, definition.on_missing
        self.on_loop = definition.is_async and is_async_capable(middleware)
        innermost = _innermost(definition.func, definition.takes_context)
        if self.is_async and self.options.soft_timeout is not None:
            innermost = _cancelled_after(innermost, self.options.soft_timeout)
        if self.is_async and not self.on_loop:
            self.call = wrap(lambda job: run_coroutine(innermost(job)), middleware)
        else:
            self.call = wrap(innermost, middleware)


def _innermost(func: Callable[..., Any], takes_context: bool) -> Handler:
    if takes_context:

        def call_with_context(job: RunningJob) -> Any:
            try:
                return func(JobContext(job), *job.args, **job.kwargs)
            finally:
                if forks.is_copy:
                    forks.leave()

        return call_with_context

    def call(job: RunningJob) -> Any:
        try:
            return func(*job.args, **job.kwargs)
        finally:
            if forks.is_copy:
                forks.leave()

    return call


def _cancelled_after(handler: Handler, seconds: float) -> Handler:
    """Wrap an async function: cancel it when its soft limit is over.  If it returns in spite of that, its value is the
    result."""

    async def call(job: RunningJob) -> Any:
        deadline = job.soft_deadline
        limit = asyncio.timeout(None if deadline is None else deadline - monotonic())
        try:
            async with limit:
                return await handler(job)
        except TimeoutError as error:
            # An error of asyncio has no text.  In the first Pythons 3.11 it names the cancellation only as its context.
            origin = error.__cause__ or error.__context__
            if error.args or not limit.expired() or not isinstance(origin, asyncio.CancelledError):
                raise
            raise TimeoutError(
                f"The attempt ran longer than its soft_timeout of {seconds:g} s and was cancelled."
            ) from None

    return call


def run_coroutine_here(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a process without a worker's event loop; sync_to_async in it uses this thread."""

    async def wait() -> Any:
        return await coroutine

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return async_to_sync(wait)()
    # A loop runs on this thread and is blocked by this call, so the coroutine needs another thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()
