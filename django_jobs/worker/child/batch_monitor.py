"""Watches a child's running batches: no claimed job may wait long behind a slow one, and no result is held back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic, sleep

from django_jobs.runtime.faults import faults_end_process
from django_jobs.worker.child.event_loop import EventLoop
from django_jobs.worker.child.queue_selector import BatchSizer
from django_jobs.worker.child.thread import Runner

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two checks.  With SLOW below it keeps the promise "a claimed job never waits more than 250 ms behind
#: slow ones".
INTERVAL = 0.05
#: Seconds after which a batch is slow, because of one job or many: the jobs its thread has not begun are handed back.
SLOW = 0.15


class BatchMonitor:
    """A thread that works only while batches run."""

    def __init__(self, runners: Sequence[Runner], loop: EventLoop | None, sizer: BatchSizer, begins: Event) -> None:
        """`begins` is set when a batch begins."""
        self.runners, self.loop, self.sizer, self._begins = runners, loop, sizer, begins
        self.thread = Thread(target=self._run, name="batch monitor", daemon=True)

    def _run(self) -> None:
        with faults_end_process():
            self._serve()

    def _serve(self) -> None:
        while True:
            self._begins.wait()
            while self.tick(monotonic()):
                sleep(INTERVAL)
            self._begins.clear()
            # A batch that began between the last check and the line above found the event set, and did not set it.
            if self.tick(monotonic()):
                self._begins.set()

    def tick(self, now: float) -> bool:
        """Check once.  Returns whether anything runs."""
        busy = False
        for runner in self.runners:
            if not runner.busy:
                continue
            busy = True
            # Read once: the thread may begin its next batch at any line here.
            seconds = now - runner.batch_since
            if (runner.waiting or runner.offered) and seconds > SLOW:
                if (current := runner.current) is not None:
                    self.sizer.observe(current.claim.queue, seconds, runner.ran + 1)
                runner.give_back()
            if runner.done and seconds > INTERVAL:
                runner.settle_done()
            if (current := runner.current) is not None:
                current.running.flush_checkin(now)
        if self.loop is not None and not self.loop.is_idle:
            busy = True
            for job in list(self.loop.running.values()):
                job.flush_checkin(now)
        return busy
