"""What runs on the main thread of a child: jobs that a timer must be able to interrupt.

Signal handlers run on the main thread only, and only there can they end a call that blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread, get_native_id

from django_jobs.core.attempt import Attempted
from django_jobs.execution.executor import Executor, Prepared
from django_jobs.runtime.faults import faults_end_process
from django_jobs.worker.batch_memory import THREAD_ID


class MainThread:
    """Runs the jobs of types that say `on_main_thread`, one after the other.  Their runner waits meanwhile."""

    def __init__(self, executor: Executor, words: memoryview[int]) -> None:
        """`words`: the shared memory of the only runner."""
        self._executor, self._words, self._id = executor, words, 0
        self._jobs: SimpleQueue[tuple[Prepared, Future[Attempted]] | None] = SimpleQueue()

    def serve(self, control: Callable[[], None]) -> None:
        """Run jobs on this thread until `control` has returned, which runs on a thread of its own."""
        self._id = get_native_id()

        def run() -> None:
            with faults_end_process():
                control()
            self._jobs.put(None)

        Thread(target=run, name="control", daemon=True).start()
        while (given := self._jobs.get()) is not None:
            prepared, ended = given
            try:
                ended.set_result(self._executor.run_here(prepared))
            except BaseException as error:
                ended.set_exception(error)

    def run_here(self, prepared: Prepared) -> Attempted:
        """Do Executor.run_here, on the main thread if the type of the job says so."""
        if not prepared.plan.definition.on_main_thread:
            return self._executor.run_here(prepared)
        # The parent looks at the thread that does the work.
        own, self._words[THREAD_ID] = self._words[THREAD_ID], self._id
        try:
            ended: Future[Attempted] = Future()
            self._jobs.put((prepared, ended))
            return ended.result()
        finally:
            self._words[THREAD_ID] = own
