"""How the parent forks its children, and their state as the parent knows it."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import NoReturn

from django_jobs.core.values import Lane
from django_jobs.runtime import database_connections, forks
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.redis import Store
from django_jobs.worker.batch_memory import StartedJob
from django_jobs.worker.child.process import run_child
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import IpcChannel, pair
from django_jobs.worker.messages import (
    Busy,
    CheckClaims,
    ChildStatus,
    ClaimId,
    ClaimsChecked,
    ClaimsCompared,
    ClaimsInStore,
    Idle,
    Message,
    Ping,
    RemoteTypes,
    Retire,
    Retiring,
    Stop,
    TypesReceived,
    WaitsToBegin,
    Yielded,
)
from django_jobs.worker.os_signals import Signals, kill_group
from django_jobs.worker.shared_memory import SharedMemory

logger = logging.getLogger("django_jobs.worker")


@dataclass(slots=True, eq=False)
class ChildHandle:
    """One child as its parent knows it."""

    name: str
    lane: Lane
    pid: int
    channel: IpcChannel
    shared: SharedMemory
    #: alone children: it has claimed jobs; since when it has none (monotonic).
    is_busy: bool = False
    idle_since: float = field(default_factory=monotonic)
    #: it takes no more jobs and ends by itself; its replacement may already run.
    retiring: bool = False
    #: why the parent killed it: "" | "timeout" | "drain" | "fenced" | "killed"
    killed_for: str = ""
    #: its last answer to a ping.
    status: ChildStatus = field(default_factory=ChildStatus)
    #: since when it has not answered a ping (monotonic); None while no ping is unanswered.
    pinged_at: float | None = None
    #: it did not answer for so long that the jobs it had not begun were taken back (see frozen.py).
    is_frozen: bool = False
    #: queues for which it has not yet answered whether its claims are still valid.
    in_doubt: set[str] = field(default_factory=set)
    #: it has confirmed the last list of remote job types.
    listens: bool = True
    #: it has confirmed that it runs no suspects and will claim none.
    has_yielded: bool = False
    #: the claim that it will not begin before we answer.
    waits: ClaimId | None = None
    #: it has compared the store's last list of its claims with its own.
    agrees: bool = True

    def read(self) -> None:
        """Read the child's messages and update this object."""
        for message in self.channel.receive():
            match message:
                case Busy():
                    self.is_busy = True
                case WaitsToBegin(claim=claim):
                    self.waits = claim
                case Idle():
                    self.is_busy, self.waits, self.idle_since = False, None, monotonic()
                case Retiring():
                    self.retiring = True
                case ClaimsChecked(queue=queue, lost=lost):
                    self.in_doubt.discard(queue)
                    if lost:
                        self.has_lost(lost)
                case ClaimsCompared():
                    self.agrees = True
                case ChildStatus():
                    self.status, self.pinged_at = message, None
                case TypesReceived():
                    self.listens = True
                case Yielded():
                    self.has_yielded = True

    def running_job(self) -> StartedJob | None:
        """Return the job that an alone child runs now.  The child changes it at any moment: two calls may differ."""
        return self.shared.running()

    def job_is_over_time(self, now: float) -> bool:
        """Has its job exceeded its time limit?"""
        return (deadline := self.shared.deadline) is not None and now >= deadline

    def check(self, queue: str) -> None:
        """Tell it to check whether its claims are still valid.  Not twice: it may be frozen and read nothing."""
        if queue not in self.in_doubt and self.tell(CheckClaims(queue)):
            self.in_doubt.add(queue)

    def end_attempt(self, queue: str, id: str, token: int) -> None:
        """A person killed the job: kill the process.  Its other jobs are handed back and run again, uncharged.
        Do nothing if the attempt is known to have ended (alone children only).  The store says it again until then."""
        self.read()
        claim, job = ClaimId(queue, id, token), self.running_job()
        if self.lane is Lane.SHARED or (job is not None and ClaimId(job.queue, job.id, job.token) == claim):
            logger.warning("Job %s was killed by a user: its process %s is ended", id, self.name)
            self.kill("killed")
        elif self.waits == claim:
            self.tell(Stop(queue, id))
        elif self.shared.waits_to_begin(queue, id, token):
            self.shared.revoke()  # it hands back what it has not begun, and will not get this one again

    def has_lost(self, ids: Sequence[str]) -> None:
        """Other workers may run these jobs now: kill the process.  Its other jobs are handed back."""
        logger.error("%s has lost the claims of jobs that it runs: %s; its process is ended", self.name, ", ".join(ids))
        self.kill("fenced")

    def ping(self, serial: int) -> None:
        """Ask it for its status."""
        if self.pinged_at is None:
            self.pinged_at = monotonic()
        self.tell(Ping(serial))

    def tell(self, message: Message) -> bool:
        """Send it.  False: it is lost, because the child has not read its messages for long or is gone."""
        return self.channel.send(message)

    def send_types(self, types: RemoteTypes) -> None:
        """Send the remote job types, unless the last ones are unconfirmed: the channel of a frozen child must keep room
        for the message that tells it to end."""
        if self.listens:
            self.listens = not self.tell(types)

    def hold(self, held: Mapping[str, Mapping[int, int]], unasked: Sequence[str]) -> None:
        """Send the claims that the store has for it (queue → token → number of claims), unless the last such message is
        unconfirmed."""
        if self.agrees:
            self.agrees = not self.tell(ClaimsInStore(held, unasked))

    def retire(self) -> None:
        """Tell it to take no more jobs, and to end when its running jobs have ended."""
        self.retiring = True
        self.tell(Retire())

    def kill(self, reason: str) -> None:
        """SIGKILL it and the processes its jobs have started.  Its jobs are dealt with when it is reaped."""
        if not self.killed_for:
            self.killed_for = reason
            kill_group(self.pid)


class ChildProcesses:
    """All living children of this parent."""

    def __init__(self, store: Store, config: WorkerConfig, name: str, signals: Signals) -> None:
        self.store, self.config, self.name, self.signals = store, config, name, signals
        self.children: dict[int, ChildHandle] = {}
        #: process id → exit status of processes that ended and do not run jobs (maintenance process, code watcher, …).
        self.foreign: dict[int, int] = {}
        self._numbers = 0
        #: queues that no child claims from (see reach.py).
        self.closed: frozenset[str] = frozenset()
        #: process id → our end of the channel, for every living process that was forked here.
        self._channels: dict[int, IpcChannel] = {}
        #: number of the last ping; a status with this number was sent after it.
        self.serial = 0

    def __iter__(self) -> Iterator[ChildHandle]:
        return iter(list(self.children.values()))

    def __len__(self) -> int:
        return len(self.children)

    def hold(self, name: str, held: Mapping[str, Mapping[int, int]], unasked: Sequence[str]) -> None:
        """All leases are renewed.  Tell the child of that name so, and which claims the store has for it."""
        for child in self:
            if child.name == name:
                child.shared.was_renewed()
                child.hold(held, unasked)

    def close_queues(self, queues: frozenset[str]) -> None:
        """Let the children claim from all queues except these."""
        self.closed = queues
        for child in self:
            child.shared.close_queues(queues)

    def of(self, lane: Lane) -> list[ChildHandle]:
        """Return the children of that lane that take jobs."""
        return [child for child in self.children.values() if child.lane is lane and not child.retiring]

    def ping(self) -> None:
        """Ask all children for their status; do not wait for the answers."""
        self.serial += 1
        for child in self:
            child.ping(self.serial)

    def spawn(self, lane: Lane) -> ChildHandle:
        """Fork one child.  Raises OSError like `fork`."""
        self._numbers += 1
        name = f"{self.name}:{self._numbers}:{token_hex(3)}"
        shared = SharedMemory(self.config.queue_names, self.config.threads_of(lane), self.config.served.most)
        shared.close_queues(self.closed)
        pid, ours = self.fork(partial(run_child, self.store, self.config, name, lane, shared))
        child = self.children[pid] = ChildHandle(name, lane, pid, ours, shared)
        return child

    def fork(self, live: Callable[[IpcChannel, int], NoReturn]) -> tuple[int, IpcChannel]:
        """Fork a process that calls `live(its end of the channel, our process id)`.  Returns its id and our end.

        The parent has no threads, and no connection is open while it forks.  Raises OSError if the system cannot start
        another process."""
        self.store.close()
        database_connections.close_all()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a pipe or terminal that is gone must not keep us from starting children
                stream.flush()
        ours, theirs = pair()
        if not self._channels:
            gc.collect()
        # The children share the pages of existing objects: the collector must not write to them, which would copy them.
        gc.freeze()
        parent = os.getpid()
        try:
            with forks.ours():
                pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            # The other children must see their channels close when the parent ends, not when we end.
            self.abandon()
            ours.close()
            live(theirs, parent)
        theirs.close()
        if ACTIVE:
            crashpoint("supervisor.after_fork")
        self._channels[pid] = ours
        return pid, ours

    def abandon(self) -> None:
        """In a forked process: close what belongs to the parent alone."""
        for channel in self._channels.values():
            channel.close()
        self.signals.close()

    def end(self) -> None:
        """SIGKILL all children."""
        for child in self:
            kill_group(child.pid)

    def forget(self, pid: int) -> None:
        """Close the channel of a process that was forked here and has ended."""
        self._channels.pop(pid).close()

    def reap(self) -> list[tuple[ChildHandle, int]]:
        """Return the children that ended, with their exit status (negative: the signal).

        Also reaps all other processes: as PID 1 this process inherits orphans."""
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self.children.pop(pid, None)
            if child is None:
                self.foreign[pid] = os.waitstatus_to_exitcode(status)
            else:
                if status or child.killed_for:
                    kill_group(pid)  # processes that its jobs started must not go on while the jobs run again elsewhere
                # Its last messages may say that its job had ended.
                while child.channel.is_open and not child.channel.is_dry:
                    child.read()
                self.forget(pid)
                ended.append((child, os.waitstatus_to_exitcode(status)))
        return ended
