"""Shows that this worker is well: touches a file, tells the service manager, and has a process answer probes."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from django_jobs.core.values import Lane
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.os_signals import kill
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.parent.heartbeat import Heartbeat
from django_jobs.worker.parent.status import WorkerStatus
from django_jobs.worker.retry import RetryState

if TYPE_CHECKING:
    from django_jobs.worker.health_process import Board

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two reports.
EVERY = 2.0
#: Seconds before a process for probes that ended is replaced.
AGAIN = 2.0


class Health:
    """Judges this worker every few seconds.  Costs nothing unless somebody asked for it.

    The file and the service manager's watchdog are served only while the leases are renewed and the children answer."""

    def __init__(
        self, config: WorkerConfig, children: ChildProcesses, heartbeat: Heartbeat, status: WorkerStatus
    ) -> None:
        self.config, self.children, self.heartbeat, self.status = config, children, heartbeat, status
        status.problems = lambda: self.problems(monotonic())
        self.file = Path(config.health_file) if config.health_file else None
        self.board: Board | None = None
        if config.http:
            # Not above: a web server takes 1.5 MB in each child, and most workers have none.
            from django_jobs.worker.health_process import Board

            self.board = Board()
        self.notify_socket = os.environ.get("NOTIFY_SOCKET", "")
        self.due = 0.0 if self.file or self.board or self.notify_socket else float("inf")
        #: process id of the process for probes; 0 while there is none.
        self.pid = 0
        self._not_before = 0.0
        self._is_ready = False
        self._complaint = ""
        self._no_room = RetryState("Starting the process that answers probes", of_store=False)

    def problems(self, now: float) -> list[str]:
        """Return what only a restart would mend, one sentence each.  Also published with the heartbeat.

        A child with one job at a time may be silent: its job runs C code, and makes no other job wait."""
        patience = self.heartbeat.lease
        return [
            f"{child.name} has not answered for {now - child.pinged_at:.0f} s."
            for child in self.children.of(Lane.SHARED)
            if child.pinged_at is not None and now - child.pinged_at > patience
        ]

    def step(self, now: float) -> None:
        """Report if it is time.  Call this in every turn, because the ends of processes are noted for one turn."""
        if self.board is not None:
            self._look_after_probes(now)
        if now < self.due:
            return
        self.due = now + EVERY
        live, ready = self.problems(now), list[str]()
        if self.heartbeat.silence > self.heartbeat.interval:
            ready.append(f"The store has not answered for {self.heartbeat.silence:.0f} s.")
        if self.status.state != "running":
            ready.append(f"The worker is {self.status.state}.")
        elif not self.children.of(Lane.SHARED):
            ready.append("No process runs jobs.")
        if self.board is not None:
            self.board.write(live, ready)
        if not live and now - self.heartbeat.last_round < self.heartbeat.lease:
            self._say_well()

    def _say_well(self) -> None:
        if self.file is not None:
            try:
                self.file.touch()
                self._complaint = ""
            except OSError as error:
                if self._complaint != str(error):
                    self._complaint = str(error)
                    logger.error("The file %s cannot be touched: %s", self.file, error)
        if self.notify_socket:
            # An older message that nobody has read yet says the same.
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
                address = "\0" + self.notify_socket[1:] if self.notify_socket.startswith("@") else self.notify_socket
                out.sendto(b"WATCHDOG=1" if self._is_ready else b"READY=1\nWATCHDOG=1", address)
                self._is_ready = True

    def _look_after_probes(self, now: float) -> None:
        status = self.children.foreign.pop(self.pid, None)
        if status is not None:
            self.children.forget(self.pid)
            self.pid, self._not_before = 0, now + AGAIN
            logger.error("The process that answers probes has ended (status %d): a new one is started", status)
        if self.pid or now < self._not_before or self.board is None or self.config.http is None:
            return
        from django_jobs.worker.health_process import StoreWatch, run_probes

        watch = StoreWatch(self.children.store, self.status.name, self.config.queue_names)
        address, board = self.config.http, self.board
        try:
            self.pid, _ = self.children.fork(lambda channel, parent: run_probes(address, board, watch, parent))
        except OSError as error:
            self._not_before = monotonic() + self._no_room.failed(error)
        else:
            self._no_room.worked()

    def end(self) -> None:
        """The worker ends: nobody answers any more, and the file is gone."""
        if self.pid and self.pid not in self.children.foreign:
            kill(self.pid)
        if self.file is not None:
            with suppress(OSError):
                self.file.unlink(missing_ok=True)
