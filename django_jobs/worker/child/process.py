"""One child process: builds its parts, follows its parent's messages, and ends when nothing is left to do."""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
from threading import Lock, Thread
from time import monotonic, time
from typing import NoReturn

from django_jobs import remote
from django_jobs.core.context import RunningJob
from django_jobs.core.values import Lane
from django_jobs.events import receivers
from django_jobs.runtime import database_connections, forks
from django_jobs.signals import child_started, child_stopping
from django_jobs.stores.redis import Store
from django_jobs.worker.child.batch_monitor import BatchMonitor
from django_jobs.worker.child.holdings import ClaimComparison
from django_jobs.worker.child.lease_check import AGAIN, LeaseCheck
from django_jobs.worker.child.parts import ChildParts
from django_jobs.worker.child.thread import Runner
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.messages import (
    CheckClaims,
    ChildStatus,
    ClaimsChecked,
    ClaimsCompared,
    ClaimsInStore,
    Close,
    Drain,
    MayBegin,
    MayRunSuspects,
    Message,
    Open,
    Ping,
    RemoteTypes,
    Retire,
    Retiring,
    Stop,
    TypesReceived,
    Yielded,
    YieldSuspects,
)
from django_jobs.worker.os_signals import die_with_parent
from django_jobs.worker.shared_memory import SharedMemory

logger = logging.getLogger("django_jobs.worker")

#: Jobs that a status describes at most; the admin shows no more per process.
_DESCRIBED = 50
#: Seconds between two checks whether the last job has ended, while the process waits to end or to give up suspects.
_LEAVING_INTERVAL = 0.01
#: Seconds that a child has for its last handlers.
GOODBYE = 5.0
#: Seconds after which a computing thread lets another one run.  Python's default of 5 ms is longer than a batch of
#: small jobs: the next claim would be sent only after the batch, and all threads would be idle until its answer.
_SWITCH_INTERVAL = 0.001


class Child(ChildParts):
    """A process that runs jobs: many at the same time (shared lane), or one at a time (alone lane)."""

    def __init__(
        self, store: Store, config: WorkerConfig, name: str, lane: Lane, shared: SharedMemory, channel: IpcChannel
    ) -> None:
        super().__init__(store, config, name, lane, shared, channel)
        fetch_lock = Lock()
        self.runners: list[Runner] = [Runner(self, n, fetch_lock) for n in range(config.threads_of(lane))]
        self.batch_monitor = BatchMonitor(self.runners, self.loop, self.sizer, self.batch_begins)
        self.lease_check = LeaseCheck(store, self._running)
        self.comparison = ClaimComparison(store, name, self.holding, self.lease_check.queues.add)

    # -- the main thread -------------------------------------------------------

    def serve(self) -> None:
        """Run jobs until the process is told to end and nothing is left to do."""
        self.signals.install(for_parent=False)
        forks.guard(self._abandon)
        forks.leave_to_parent()
        sys.setswitchinterval(_SWITCH_INTERVAL)
        child_started.send_robust(None, name=self.name)
        database_connections.close_all()  # the receivers' connections: this thread runs no jobs
        self.batch_monitor.thread.start()
        for runner in self.runners:
            runner.thread.start()
        if self.main_thread is None:
            self._follow()
        else:
            self.main_thread.serve(self._follow)

    def _follow(self) -> None:
        """Follow the parent's messages and the signals of this process until nothing is left to do."""
        while True:
            hurries = self.gate.final or (self.permission.must_yield and self.fetcher.claiming)
            timeout = _LEAVING_INTERVAL if hurries else AGAIN if self.lease_check.queues else None
            ready = select.select([self.channel.fileno(), self.signals.fileno()], [], [], timeout)[0]
            if self.signals.fileno() in ready:
                self.signals.clear()
            if self.signals.stops and not self.gate.final:
                self.gate.retire()
                self.channel.send(Retiring())
            if self.channel.fileno() in ready:
                for message in self.channel.receive():
                    self._obey(message)
                if not self.channel.is_open:
                    os._exit(1)  # the parent, which renews our leases, is gone
            if self.permission.yields(self.fetcher.claiming):
                self.channel.send(Yielded())
            for queue, lost in self.lease_check.settle():
                self.channel.send(ClaimsChecked(queue, lost))
            if self.gate.final and self.is_idle:
                self.settler.signal_thread.finish(receivers.LAST_TIME)
                self._say_goodbye()
                return

    def _say_goodbye(self) -> None:
        """Let receivers and `atexit` handlers run: log queues and traces lose nothing.  A hanging one must not keep us
        alive."""

        def run() -> None:
            child_stopping.send_robust(None, name=self.name)
            atexit._run_exitfuncs()

        saying = Thread(target=run, daemon=True)
        saying.start()
        saying.join(GOODBYE)
        if saying.is_alive():
            logger.error("Handlers of child_stopping or atexit have not returned after %g s", GOODBYE)

    def _abandon(self) -> None:
        """In a copy of this process that a job has forked: run no other job, and close what belongs to this process."""
        self.gate.abandon()
        self.channel.close()
        self.signals.close()
        if self.loop is not None:
            self.loop.abandon()
        self.store.abandon()

    @property
    def is_idle(self) -> bool:
        """Could this process end now without losing anything?  Meaningful once the gate is closed."""
        return (
            not self.fetcher.claiming
            and not any(runner.busy for runner in self.runners)
            and (self.loop is None or self.loop.is_idle)
            and self.settler.is_idle
        )

    def _obey(self, message: Message) -> None:
        match message:
            case Drain():
                self.stops.everybody = True
                self.gate.drain()
                self.permission.give_up()
            case Retire():
                self.gate.retire()
            case Close():
                self.gate.close()
            case Open():
                self.gate.open()
            case Stop(queue=queue, id=id):
                self.stops.jobs.add((queue, id))
                self.permission.give_up(queue, id)
            case ClaimsInStore(held=held, unasked=unasked):
                self.comparison.compare(held, unasked)
                self.channel.send(ClaimsCompared())
            case MayRunSuspects():
                self.permission.may_try, self.fetcher.lane = True, Lane.ALONE
            case YieldSuspects():
                self.permission.must_yield, self.fetcher.lane = True, Lane.CLEAR
            case MayBegin():
                self.permission.answer(message)
            case CheckClaims(queue=queue):
                self.lease_check.queues.add(queue)
            case RemoteTypes(at=at, types=types):
                remote.replace_types(at, types)
                self.channel.send(TypesReceived())
            case Ping(serial=serial):
                self.channel.send(self._status(serial))

    def _running(self) -> list[RunningJob]:
        here = [current.running for runner in self.runners if (current := runner.current) is not None]
        return here if self.loop is None else here + list(self.loop.running.values())

    def _status(self, serial: int) -> ChildStatus:
        now, wall = monotonic(), time()
        jobs = [
            {
                "id": current.claim.id,
                "name": current.running.name,
                "queue": current.claim.queue,
                "since": int((wall - now + runner.since) * 1000),
            }
            for runner in self.runners
            if (current := runner.current) is not None
        ]
        if self.loop is not None:
            jobs += [
                {"id": job.id, "name": job.name, "queue": job.queue, "since": job.claimed_ms}
                for job in list(self.loop.running.values())[:_DESCRIBED]
            ]
        return ChildStatus(serial=serial, idle=self.is_idle, claimed=self.claimed, jobs=jobs[:_DESCRIBED])


def run_child(
    store: Store,
    config: WorkerConfig,
    name: str,
    lane: Lane,
    shared: SharedMemory,
    channel: IpcChannel,
    parent: int,
) -> NoReturn:
    """Run a forked child until it ends; never returns into the parent's code."""
    status = 1
    try:
        # A process group of its own: processes that its jobs start are killed with it.  A new session: a debugger can
        # still read the terminal.
        os.setsid()
        die_with_parent(parent)
        Child(store, config, name, lane, shared, channel).serve()
        status = 0
    except BaseException:
        logger.critical("Worker process %s failed", name, exc_info=True)
    finally:
        logging.shutdown()
        # Skip the finally blocks on the parent's stack: they belong to the parent.
        os._exit(status)
