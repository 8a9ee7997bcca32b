"""The event loop of a child: it runs many `async def` jobs at the same time, in addition to the threads."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Semaphore, Thread
from typing import Any

from django_jobs.core.attempt import Attempted
from django_jobs.core.context import RunningJob
from django_jobs.execution.executor import Executor, Prepared
from django_jobs.runtime import database_connections, forks
from django_jobs.runtime.faults import faults_end_process
from django_jobs.runtime.job_threads import JobThread, JobThreads, WaitingThread, use

logger = logging.getLogger("django_jobs.worker")

#: Threads for `asyncio.to_thread`: as many as asyncio itself has at most.
_HELPERS = 32


class EventLoop:
    """Starts with the first async job.  `submit` waits for a free place, which limits the number of claims."""

    def __init__(self, concurrency: int, finished: Callable[[Attempted], None]) -> None:
        self.concurrency = concurrency
        self.finished = finished
        self.executor: Executor | None = None
        #: jobs on the loop, by the id() of their RunningJob: after a lost claim the same (queue, id) may come twice.
        self.running: dict[int, RunningJob] = {}
        self._places = Semaphore(concurrency)
        #: submitted jobs that the loop has not begun, and whether it was told of them.
        self._new: deque[Prepared] = deque()
        self._told = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._left: list[Any] = []
        self._pool: ThreadPoolExecutor | None = None
        self._threads = JobThreads(_HELPERS)

    @property
    def is_idle(self) -> bool:
        return not self.running

    def submit(self, prepared: Prepared) -> None:
        """Run the job on the loop; if its middleware cannot run there, on a thread that waits for the loop.

        Blocks until there is a free place."""
        self._places.acquire()
        self.running[id(prepared.running)] = prepared.running
        if prepared.plan.on_loop:
            loop = self.loop()
            self._new.append(prepared)
            if not self._told:  # one message for all jobs that come before the loop answers it
                self._told = True
                loop.call_soon_threadsafe(self._begin)
        else:
            self._wrapped_jobs().submit(contextvars.Context().run, self._run_wrapped, prepared)

    def _begin(self) -> None:
        """On the loop: begin the jobs that were submitted."""
        self._told = False  # first: a job that comes from now on sends a message again
        while self._new:
            self._start(self._new.popleft())

    def _start(self, prepared: Prepared) -> None:
        assert self._loop is not None

        def is_over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() and id(prepared.running) in self.running:
                # Another job cancelled it before its first step: nothing has run.
                self._start(prepared)

        task = self._loop.create_task(self._run(prepared))
        self._tasks.add(task)  # the loop itself refers to tasks only weakly
        task.add_done_callback(is_over)

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine on the loop, with this thread's context variables, and wait for its result."""
        loop, thread = self.loop(), WaitingThread(self._threads)
        future = asyncio.run_coroutine_threadsafe(_on_thread(coroutine, thread), loop)
        future.add_done_callback(lambda _: thread.is_over())
        thread.serve()
        return future.result()

    async def _run(self, prepared: Prepared) -> None:
        assert self.executor is not None
        with faults_end_process():  # nothing reads this task's result: the job would count as running for ever
            thread = JobThread(self._threads)
            use(thread)
            attempted = await self.executor.run_on_loop(prepared)
            await thread.is_over(prepared.claim.id, prepared.job.name)
            self._end(prepared, attempted)

    def _run_wrapped(self, prepared: Prepared) -> None:
        assert self.executor is not None
        with faults_end_process():
            attempted = self.executor.run_here(prepared)
            # There may be `concurrency` threads like this: close the connections that the middleware opened.
            database_connections.close_thread()
            self._end(prepared, attempted)

    def _end(self, prepared: Prepared, attempted: Attempted) -> None:
        self.finished(attempted)
        self.running.pop(id(prepared.running), None)
        self._places.release()

    def abandon(self) -> None:
        """In a copy of the process: a job that forked on the loop's thread may end there, but must not wait, and the
        copy must not run the other jobs of the loop."""
        if self._loop is not None and self._thread == threading.get_ident():
            ready = getattr(self._loop, "_ready", None)  # other loop implementations do not have it
            if ready is not None:
                self._left = list(ready)  # kept: Python warns about a coroutine that is dropped
                ready.clear()
            self._new.clear()
            error = RuntimeError("A process that an async job has forked must not wait for anything on the event loop.")
            self._loop.call_soon(forks.leave, error)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start it at the first call."""
        if self._loop is None:
            with self._lock:
                if self._loop is None:
                    loop = asyncio.new_event_loop()
                    loop.set_default_executor(self._threads.helpers)
                    thread = Thread(target=self._serve, args=(loop,), name="event loop", daemon=True)
                    thread.start()
                    self._loop, self._thread = loop, thread.ident
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # A callback of a job's library raised it; the other jobs on this loop must continue.
                logger.error("A task on the event loop raised %s; the loop continues", type(error).__name__)

    def _wrapped_jobs(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="async job")
            return self._pool


async def _on_thread(coroutine: Coroutine[Any, Any, Any], thread: WaitingThread) -> Any:
    use(thread)
    return await coroutine
