"""Starts the maintenance process, replaces it if it dies or is silent, gives it signals to send, and ends it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from time import monotonic

from django_jobs import remote
from django_jobs.events.signal_events import SignalEvent
from django_jobs.worker.ipc import IpcChannel
from django_jobs.worker.maintenance.process import STUCK, run_maintenance
from django_jobs.worker.maintenance.tasks import ExtraTask, Leaves
from django_jobs.worker.messages import (
    RemoteTypes,
    Retire,
    SignalBegun,
    SignalSent,
    SpareExpiredLeases,
    TaskHasRun,
)
from django_jobs.worker.os_signals import kill
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.retry import RetryState
from django_jobs.worker.signal_sender import UnsentSignals

logger = logging.getLogger("django_jobs.worker")

#: Seconds before a maintenance process that died is replaced: doubled each time, and reset after one that lived longer
#: than LONGEST_PAUSE.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Seconds that --burst waits for a database that holds up a task or a signal receiver.
PATIENCE = 10.0


class MaintenanceMonitor:
    """Looks after the maintenance process; there is at most one at a time."""

    def __init__(self, child_processes: ChildProcesses, extra_tasks: Sequence[ExtraTask]) -> None:
        self.child_processes, self.extra_tasks = child_processes, extra_tasks
        #: process id of the maintenance process; 0 while there is none.
        self.pid = 0
        self.channel: IpcChannel | None = None
        #: how many tasks of this maintenance process have run once.
        self.begun = 0
        self._started = self._heard = self._not_before = 0.0
        self._pause = SHORTEST_PAUSE
        self._spare_until = 0.0
        #: signals that are not sent to their receivers yet.
        self.unsent_signals = UnsentSignals()
        self._retired = False
        self._no_room = RetryState("Starting the maintenance process", of_store=False)

    def look_after(self, now: float) -> None:
        """Start a maintenance process if there is none, notice its end, and kill one that is silent."""
        if self.pid in self.child_processes.foreign:
            self._died(self.child_processes.foreign.pop(self.pid), now)
        if self.channel is not None:
            self.unsent_signals.give(self.channel)
        if not self.pid:
            if now >= self._not_before and (self.unsent_signals or not self._retired):
                self._start(now)
        elif now - self._heard > STUCK:
            logger.error("The maintenance process has not reported for %d s: it is replaced", int(STUCK))
            self._heard = now
            kill(self.pid)

    def read(self) -> None:
        """Read the messages of the maintenance process."""
        if self.channel is None:
            return
        for message in self.channel.receive():
            self._heard = monotonic()
            match message:
                case TaskHasRun():
                    self.begun += 1
                case RemoteTypes():
                    self._pass_on(message)
                case SignalBegun():
                    self.unsent_signals.begun()
                case SignalSent():
                    self.unsent_signals.sent()
        self.unsent_signals.give(self.channel)

    def _pass_on(self, types: RemoteTypes) -> None:
        """Pass remote job types on to the living children, and keep them for children that are forked later."""
        remote.replace_types(types.at, types.types)
        for child in self.child_processes:
            child.send_types(types)

    def fileno(self) -> int | None:
        """Return the file descriptor that has its messages; None if there is none."""
        return self.channel.fileno() if self.channel is not None and self.channel.is_open else None

    def has_begun(self, now: float) -> bool:
        """Has every task run once, and that of the store taken back what lost workers held?  True also if that takes
        too long: a database may not answer."""
        # Those of the store, the look for queues that nobody serves, and the extra tasks.
        return self.begun >= 2 + len(self.extra_tasks) or (self.pid != 0 and now - self._started > PATIENCE)

    def announce(self, signal_event: SignalEvent) -> None:
        """Have the signal sent to its receivers: by this maintenance process, or by the next."""
        self.unsent_signals.add(signal_event)
        if self.channel is not None:
            self.unsent_signals.give(self.channel)

    def has_told(self, now: float) -> bool:
        """Have all signals been sent?  True also if a receiver takes too long."""
        return not self.unsent_signals or now - self.unsent_signals.moved_at > PATIENCE

    def spare_expired_leases(self, seconds: float) -> None:
        """Have no expired leases recovered for that many seconds."""
        self._spare_until = max(self._spare_until, monotonic() + seconds)
        if self.channel is not None:
            self.channel.send(SpareExpiredLeases(seconds))

    def retire(self) -> None:
        """The worker stops: from now on, only send the signals about jobs that die."""
        self._retired = True
        if self.channel is not None:
            self.channel.send(Retire())

    def end(self) -> None:
        """Kill it now: its tasks may be interrupted anywhere."""
        if self.pid:
            kill(self.pid)

    def wait(self) -> None:
        """After `end`: wait until it is gone."""
        if not self.pid or self.pid in self.child_processes.foreign:
            return
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return

    def leave(self) -> None:
        """After `wait`: give back what the tasks held.  Raises StoreError."""
        for task in self.extra_tasks:
            if isinstance(task, Leaves):
                task.leave()

    def _start(self, now: float) -> None:
        config, store = self.child_processes.config, self.child_processes.store
        extra_tasks = () if self._retired else self.extra_tasks
        try:
            self.pid, self.channel = self.child_processes.fork(partial(run_maintenance, store, config, extra_tasks))
        except OSError as error:
            self._not_before = monotonic() + self._no_room.failed(error)
            return
        self._no_room.worked()
        self.begun, self._started, self._heard = 0, now, monotonic()
        if self._retired:
            self.retire()
        if (rest := self._spare_until - monotonic()) > 0:
            self.channel.send(SpareExpiredLeases(rest))

    def _died(self, status: int, now: float) -> None:
        # Its last messages: they say which signals it has begun to send.
        while self.channel is not None and self.channel.is_open and not self.channel.is_dry:
            self.read()
        self.child_processes.forget(self.pid)
        self.pid, self.channel = 0, None
        self.unsent_signals.maintenance_died()
        if now - self._started > LONGEST_PAUSE:
            self._pause = SHORTEST_PAUSE
        logger.error("The maintenance process died (status %d)", status)
        self._not_before = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
