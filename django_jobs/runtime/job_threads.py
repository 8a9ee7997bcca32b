"""The threads on which `async def` jobs run their blocking code: each job has one, as if it ran on a thread itself."""

from __future__ import annotations

from asyncio import CancelledError, wait, wrap_future
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from django_jobs.runtime import database_connections

T = TypeVar("T")

#: How many threads keep their connections for later jobs.  The others end with their jobs.
KEPT = 8


class HelperThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`.  Each call finds and leaves its connections like a job."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(_between_checks, fn, args, kwargs)


def _between_checks(fn: Callable[..., T], args: Any, kwargs: Any) -> T:
    database_connections.before_job()
    try:
        return fn(*args, **kwargs)
    finally:
        database_connections.after_job()


class JobThreads:
    """Threads without a job, and the helpers that all jobs share."""

    def __init__(self, helpers: int) -> None:
        self.helpers = HelperThreads(helpers, thread_name_prefix="helper of async jobs")
        self._free: deque[ThreadPoolExecutor] = deque()

    def take(self) -> ThreadPoolExecutor:
        """Return a thread whose connections are fit for a job."""
        try:
            thread = self._free.pop()
        except IndexError:
            thread = ThreadPoolExecutor(1, thread_name_prefix="sync code of an async job")
        thread.submit(database_connections.before_job)
        return thread

    async def give_back(self, thread: ThreadPoolExecutor, id: str, name: str) -> None:
        """Tidy the connections of the thread once the job's last call on it has returned."""
        tidied = thread.submit(database_connections.after_job, id, name)
        while not tidied.done():
            with suppress(CancelledError):  # the job may have cancelled its own task before it returned
                await wait([wrap_future(tidied)])
        if len(self._free) < KEPT:
            self._free.append(thread)
        else:
            thread.submit(database_connections.close_thread)
            thread.shutdown(wait=False)


class JobThread(Executor):
    """The thread of one job.  It is taken at the first call: most async jobs make none.

    Tasks that outlive the job use the helper threads."""

    def __init__(self, threads: JobThreads) -> None:
        self._threads = threads
        self._thread: ThreadPoolExecutor | None = None
        self._is_over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._is_over:
            return self._threads.helpers.submit(fn, *args, **kwargs)
        if self._thread is None:
            self._thread = self._threads.take()
        return self._thread.submit(fn, *args, **kwargs)

    async def is_over(self, id: str, name: str) -> None:
        """Wait for the job's calls, and give the thread back."""
        self._is_over = True
        if self._thread is not None:
            await self._threads.give_back(self._thread, id, name)


class WaitingThread(Executor):
    """A thread that waits for a coroutine on the loop and meanwhile runs its blocking code: the coroutine then uses the
    connections that the middleware on this thread has prepared."""

    def __init__(self, threads: JobThreads) -> None:
        self._threads = threads
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._is_over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._is_over:
            return self._threads.helpers.submit(fn, *args, **kwargs)
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        self._calls.put(call)
        return future

    def is_over(self) -> None:
        """On the loop, when the coroutine has ended."""
        self._is_over = True
        self._calls.put(None)

    def serve(self) -> None:
        """Run the coroutine's calls until it has ended."""
        while (call := self._calls.get()) is not None:
            call()


def use(thread: Executor) -> None:
    """From now on, `sync_to_async` in this task and in the tasks that it starts runs on that thread."""
    context = ThreadSensitiveContext()
    SyncToAsync.context_to_thread_executor[context] = thread
    SyncToAsync.thread_sensitive_context.set(context)
