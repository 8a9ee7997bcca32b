"""The parts that the threads of one child process share: those that claim, run and settle jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event
from time import monotonic
from typing import Protocol

from django_jobs.core.context import StopRequests
from django_jobs.core.values import Job, Lane
from django_jobs.events import receivers
from django_jobs.execution.executor import Executor
from django_jobs.execution.plan import run_coroutine_here
from django_jobs.formatting import counted
from django_jobs.stores.redis import Store
from django_jobs.worker.child.event_loop import EventLoop
from django_jobs.worker.child.fetcher import Fetcher, StoreClock
from django_jobs.worker.child.gate import Gate
from django_jobs.worker.child.holdings import HeldClaims
from django_jobs.worker.child.main_thread import MainThread
from django_jobs.worker.child.queue_selector import BatchSizer
from django_jobs.worker.child.settler import Settler
from django_jobs.worker.child.suspect_permission import SuspectPermission
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.messages import Busy, Idle, Retiring
from django_jobs.worker.os_signals import Signals
from django_jobs.worker.retry import RetryState
from django_jobs.worker.shared_memory import SharedMemory

logger = logging.getLogger("django_jobs.worker")


class RunnerThread(Protocol):
    """A thread, as the others see it."""

    @property
    def busy(self) -> bool: ...


class Reports:
    """What an alone child tells its parent: which job runs, without a message; and by a message, whether it works."""

    def __init__(self, channel: IpcChannel, shared: SharedMemory) -> None:
        self._channel, self._shared = channel, shared
        self._is_busy = False

    def started(self, number: int, job: Job) -> None:
        """The job of that number in the batch begins: its time limit counts from now."""
        now, limit = monotonic(), job.options.timeout
        self._shared.batches[0].runs(number, now, limit)
        self._shared.may_run_until(None if limit is None else now + limit / 1000)

    def returned(self) -> None:
        """The job's function has returned: the time limit does not include settling, which may wait for the store."""
        self._shared.may_run_until(None)
        self._shared.batches[0].runs_nothing()

    def works(self) -> None:
        """The child has claimed jobs.  One message for all batches until it waits for work again."""
        if not self._is_busy:
            self._is_busy = True
            self._channel.send(Busy())

    def waits(self) -> None:
        """The child has no jobs."""
        if self._is_busy:
            self._is_busy = False
            self._channel.send(Idle())


class ChildParts:
    """The parts of one child; the process itself is built on them."""

    #: the threads that run jobs.
    runners: Sequence[RunnerThread] = ()

    def __init__(
        self, store: Store, config: WorkerConfig, name: str, lane: Lane, shared: SharedMemory, channel: IpcChannel
    ) -> None:
        self.store, self.config, self.name, self.lane, self.channel = store, config, name, lane, channel
        self.shared = shared
        self.gate, self.stops, self.clock = Gate(), StopRequests(), StoreClock()
        self.signals, self.retry_state = Signals(), RetryState(f"Claiming for {name}")
        self.holding = HeldClaims()
        self.sizer, self.settler = BatchSizer(), Settler(store, self.holding, shared.tally)
        receivers.use(self.settler.signal_thread)
        self.claimed = 0
        self.permission = SuspectPermission(store, self.gate, channel, self.signals.wake)
        alone = lane is Lane.ALONE
        self.reports = Reports(channel, shared) if alone else None
        self.loop = None if alone else EventLoop(config.async_concurrency, self.settler.settle_soon)
        self.executor = Executor(
            stops=self.stops,
            clock=self.clock,
            deliver=self.settler.signal_thread.deliver,
            run_coroutine=run_coroutine_here if self.loop is None else self.loop.run_coroutine,
        )
        if self.loop is not None:
            self.loop.executor = self.executor
        self.main_thread = MainThread(self.executor, shared.batches[0].words) if alone else None
        self.run_here = self.executor.run_here if self.main_thread is None else self.main_thread.run_here
        self.fetcher = Fetcher(
            store,
            name,
            config.served,
            lane=Lane.CLEAR if alone else lane,
            lease=config.lease,
            strict=config.strict,
            gate=self.gate,
            clock=self.clock,
            size=self._size,
            holding=self.holding,
            shared=shared,
            drain=config.drain,
            deliver=self.settler.signal_thread.deliver,
            before_wait=None if self.reports is None else self.reports.waits,
        )
        #: set when a batch begins: then the batch monitor checks.
        self.batch_begins = Event()

    def _size(self, queue: str) -> int:
        size = self.sizer.size(queue)
        return min(size, max(self.config.max_jobs - self.claimed, 1)) if self.config.max_jobs else size

    def count_claimed(self, jobs: int) -> None:
        """Count the jobs that a runner has claimed.  The runner holds the fetch lock: no other thread can claim before
        the gate is closed."""
        self.claimed += jobs
        if self.config.max_jobs and self.claimed >= self.config.max_jobs and not self.gate.final:
            claimed = counted(self.claimed, "job")
            logger.info("%s has claimed %s; when they are done, it is replaced", self.name, claimed)
            self.gate.retire()
            self.channel.send(Retiring())
            self.signals.wake()
