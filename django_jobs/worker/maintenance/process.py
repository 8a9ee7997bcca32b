"""The maintenance process: a child that runs no jobs, but the tasks that serve all workers and may be slow.

The parent may wait only for the store, and only briefly, because heartbeats, time limits and signals depend on it.  In
this process a database that does not answer holds up only the task that uses it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Sequence
from threading import Thread
from time import monotonic, sleep
from typing import NoReturn

from django_jobs import remote
from django_jobs.runtime import database_connections, forks
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.maintenance.tasks import ExtraTask, MaintenanceTasks
from django_jobs.worker.maintenance.unserved import UnservedQueues
from django_jobs.worker.messages import Alive, RemoteTypes, Retire, SendSignal, SpareExpiredLeases, TaskHasRun
from django_jobs.worker.os_signals import STOPS, die_with_parent
from django_jobs.worker.signal_sender import SignalSender

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two "alive" messages to the parent.
SIGN = 5.0
#: Seconds after which a task that has not returned counts as stuck, and this process ends: its replacement has new
#: connections.  All tasks work in bounded steps, which take a fraction of this time.
STUCK = 120.0
#: Exit status in that case; sysexits.h calls it EX_TEMPFAIL.
GIVEN_UP = 75


class TaskThread:
    """Runs one task on its own thread."""

    def __init__(self, store: Store, lease: int, extra_task: ExtraTask, channel: IpcChannel) -> None:
        self.tasks = MaintenanceTasks(store, None, lease, [extra_task])
        self.channel = channel
        self.retired = False
        #: monotonic: when the current run of the task began; None between two runs.
        self.since: float | None = None
        self.thread = Thread(target=self._run, name="maintenance task", daemon=True)

    def _run(self) -> None:
        self._work()
        self.channel.send(TaskHasRun())
        while True:
            sleep(max(self.tasks.due - monotonic(), 0.0))
            if self.retired:
                return
            self._work()

    def _work(self) -> None:
        self.since = monotonic()
        database_connections.before_job()
        self.tasks.step(monotonic())
        database_connections.after_job()
        self.since = None


class MaintenanceProcess:
    """Runs the store's tasks on the main thread, every other task on its own thread, and sends signals on another."""

    def __init__(
        self, store: Store, config: WorkerConfig, extra_tasks: Sequence[ExtraTask], channel: IpcChannel
    ) -> None:
        self.channel, self.signal_sender, self.retired = channel, SignalSender(channel), False
        own = config.queue_names
        unserved = UnservedQueues(store, own, config.lease)
        self.tasks = MaintenanceTasks(
            store, own, config.lease, deliver=self.signal_sender.deliver, others=lambda: unserved.found
        )
        self.task_threads = [TaskThread(store, config.lease, each, channel) for each in (unserved, *extra_tasks)]
        self._beside: list[TaskThread | SignalSender] = [self.signal_sender, *self.task_threads]

    def serve(self) -> NoReturn:
        """Work until the parent is gone or ends this process."""
        for each in self._beside:
            each.thread.start()
        said, has_recovered = 0.0, False
        while True:
            timeout = SIGN if self.retired else max(min(self.tasks.due - monotonic(), SIGN), 0.0)
            while select.select([self.channel.fileno()], [], [], timeout)[0]:
                # Messages come first: a task must not recover expired leases that the parent wants to be spared.
                self._obey()
                timeout = 0.0
            now = monotonic()
            if now - said >= SIGN:
                said = now
                self.channel.send(Alive())
            self._look_at_task_threads(now)
            if not self.retired:
                self.tasks.step(now)
                if not has_recovered and self.tasks.has_recovered:
                    has_recovered = True
                    self.channel.send(TaskHasRun())

    def _obey(self) -> None:
        for message in self.channel.receive():
            match message:
                case SpareExpiredLeases(seconds=seconds):
                    self.tasks.spare_expired_leases(seconds)
                case SendSignal():
                    self.signal_sender.take(message)
                case Retire():
                    self._retire()
        if not self.channel.is_open:
            os._exit(1)

    def _retire(self) -> None:
        """The worker stops: start no task any more, and only send the signals about jobs that die in the meantime."""
        self.retired = True
        for task_thread in self.task_threads:
            task_thread.retired = True

    def _look_at_task_threads(self, now: float) -> None:
        for each in self._beside:
            since = each.since
            if since is not None and now - since > STUCK:
                logger.error("A maintenance task has not returned for %d s: its process is replaced", int(now - since))
                logging.shutdown()
                os._exit(GIVEN_UP)


def run_maintenance(
    store: Store, config: WorkerConfig, extra_tasks: Sequence[ExtraTask], channel: IpcChannel, parent: int
) -> NoReturn:
    """Run a forked maintenance process until it ends; never returns into the parent's code."""
    try:
        for number in (signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        # Every task may be interrupted anywhere, and the parent decides when.  A stop signal may go to all processes of
        # a service at once; the signals about jobs that die during the stop must still be sent.
        # The handler does nothing.  It is not SIG_IGN, which processes started by a signal receiver would inherit.
        for number in (*STOPS, signal.SIGINT):
            signal.signal(number, lambda number, frame: None)
        forks.guard(channel.close)
        die_with_parent(parent)
        remote.tell(lambda at, types: channel.send(RemoteTypes(at, [each._asdict() for each in types])))
        MaintenanceProcess(store, config, extra_tasks, channel).serve()
    except BaseException:
        logger.critical("The maintenance process failed", exc_info=True)
    finally:
        logging.shutdown()
        os._exit(1)
