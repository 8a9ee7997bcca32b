"""Watches a child's running batches: no claimed job may wait long behind a slow one, and no result is held back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from django_jobs.runtime.faults import end_process
from django_jobs.worker.child.batch_size import BatchSizer
from django_jobs.worker.child.event_loop import EventLoop

if TYPE_CHECKING:
    from django_jobs.worker.child.thread import Runner

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two checks.  With SLOW below it keeps the promise "a claimed job never waits more than 250 ms behind
#: slow ones".
INTERVAL = 0.05
#: Seconds after which a batch is slow, because of one job or many: the jobs its thread has not begun are handed back.
SLOW = 0.15


class BatchMonitor:
    """A thread that works only while batches run."""

    def __init__(self, runners: Sequence[Runner], loop: EventLoop | None, sizer: BatchSizer) -> None:
        self.runners, self.loop, self.sizer = runners, loop, sizer
        self._wanted = Event()
        self.thread = Thread(target=self._run, name="batch monitor", daemon=True)

    def look(self) -> None:
        """Start checking: a batch begins."""
        if not self._wanted.is_set():
            self._wanted.set()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            end_process()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            while self.tick(monotonic()):
                sleep(INTERVAL)
            self._wanted.clear()
            # A batch that began between the last check and the line above found the event set, and did not set it.
            if self.tick(monotonic()):
                self._wanted.set()

    def tick(self, now: float) -> bool:
        """Check once.  Returns whether anything runs."""
        busy = False
        for runner in self.runners:
            if not runner.busy:
                continue
            busy = True
            if (runner.waiting or runner.offered) and now - runner.batch_since > SLOW:
                if (current := runner.current) is not None:
                    self.sizer.observe(current.claim.queue, now - runner.batch_since, runner.ran + 1)
                runner.give_back()
            if runner.done and now - runner.batch_since > INTERVAL:
                runner.settle_done()
            if (current := runner.current) is not None:
                current.running.flush_checkin(now)
        if self.loop is not None and not self.loop.is_idle:
            busy = True
            for job in list(self.loop.running.values()):
                job.flush_checkin(now)
        return busy
