"""The parent's side of its children: forking them, and what is known of each."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import Any, NoReturn

from django_jobs.core.values import Lane
from django_jobs.runtime import database_connections, forks
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.contract.store import Store
from django_jobs.worker.child.process import run_child
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import Channel, pair
from django_jobs.worker.os_signals import Signals, kill_group
from django_jobs.worker.shared_memory import SharedMemory

logger = logging.getLogger("django_jobs.worker")


@dataclass(slots=True)
class StartedJob:
    """The job an alone child said it starts."""

    queue: str
    id: str
    token: int
    #: ms, or None.
    timeout: int | None
    #: monotonic seconds.
    at: float
    left: int
    #: a worker that held it died whole.
    suspect: bool = False

    @property
    def deadline(self) -> float | None:
        return None if self.timeout is None else self.at + self.timeout / 1000


@dataclass(slots=True, eq=False)
class ChildHandle:
    """One child as its parent knows it."""

    name: str
    lane: Lane
    pid: int
    channel: Channel
    shared: SharedMemory
    #: alone children: the job that runs, and since when none does.
    job: StartedJob | None = None
    idle_since: float = field(default_factory=monotonic)
    #: it takes no more jobs and ends by itself; its place may be filled already.
    retiring: bool = False
    #: why the parent killed it: "" | "timeout" | "drain" | "fenced" | "killed"
    killed_for: str = ""
    pong: dict[str, Any] = field(default_factory=dict)
    #: since when it has not answered (monotonic); None while no ping is under way.
    pinged_at: float | None = None
    #: it has not answered for so long that what it had not begun was taken from it (see frozen.py).
    is_frozen: bool = False
    #: queues in which it was asked whether its claims are still its own, and has not answered yet.
    in_doubt: set[str] = field(default_factory=set)
    #: it has taken in the remote job types it was told last.
    listens: bool = True
    #: it may not run suspects any more, and runs none.
    has_yielded: bool = False
    #: it has compared what the store said it holds with what it knows.
    agrees: bool = True

    def read(self) -> None:
        """Take in what the child said."""
        for message in self.channel.receive():
            match message.pop("is"):
                case "started":
                    self.job = StartedJob(**message)
                case "ended":
                    self.job, self.idle_since = None, monotonic()
                case "retiring":
                    self.retiring = True
                case "checked":
                    self.in_doubt.discard(message["queue"])
                    if message["lost"]:
                        self.has_lost(message["lost"])
                case "agreed":
                    self.agrees = True
                case "pong":
                    self.pong, self.pinged_at = message, None
                case "learnt":
                    self.listens = True
                case "yielded":
                    self.has_yielded = True

    def job_is_over_time(self, now: float) -> bool:
        """Does its job run for longer than it may?"""
        return (deadline := self.shared.deadline) is not None and now >= deadline

    def check(self, queue: str) -> None:
        """Have it ask whether the jobs that it runs are still its own; not twice, it may be frozen and read nothing."""
        if queue not in self.in_doubt:
            self.in_doubt.add(queue)
            self.tell("check", queue=queue)

    def end_attempt(self, queue: str, id: str, token: int) -> None:
        """A person killed it: end the process, and what runs beside it, which is handed back and runs again, uncharged.
        An attempt that has ended meanwhile is left alone where that is known here."""
        self.read()
        job = self.job
        if self.lane is Lane.SHARED or (job is not None and (job.queue, job.id, job.token) == (queue, id, token)):
            logger.warning("Job %s was killed by a person: its process %s is ended", id, self.name)
            self.kill("killed")

    def has_lost(self, ids: Sequence[str]) -> None:
        """Others run these jobs by now: end them here, and what runs beside them, which is handed back."""
        logger.error("%s runs jobs whose claim was lost: %s; its process is ended", self.name, ", ".join(ids))
        self.kill("fenced")

    def ping(self, serial: int) -> None:
        """Ask what it does."""
        if self.pinged_at is None:
            self.pinged_at = monotonic()
        self.tell("ping", serial=serial)

    def tell(self, what: str, **more: Any) -> None:
        self.channel.send({"do": what, **more})

    def learn(self, at: float, types: list[list[Any]]) -> None:
        """Tell it the remote job types, unless it has not taken in the last ones: a child that a job has frozen must
        find room in its channel for what it is told when it has to end."""
        if self.listens:
            self.listens = False
            self.tell("learn", at=at, types=types)

    def hold(self, held: Mapping[str, Mapping[int, int]], unasked: Sequence[str]) -> None:
        """Tell it what the store has for it (queue → token → claims), unless it is still busy with the last news."""
        if self.agrees:
            self.agrees = False
            self.tell("held", held=held, unasked=unasked)

    def retire(self) -> None:
        """It takes no more jobs, and ends when what it runs has ended."""
        self.retiring = True
        self.tell("retire")

    def kill(self, reason: str) -> None:
        """SIGKILL it and what its jobs have started; what becomes of its jobs is decided when it is reaped."""
        if not self.killed_for:
            self.killed_for = reason
            kill_group(self.pid)

    def memory(self) -> int:
        """Resident bytes; 0 where /proc does not tell."""
        try:
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0


class ChildProcesses:
    """All living children of this parent."""

    def __init__(self, store: Store, config: WorkerConfig, name: str, signals: Signals) -> None:
        self.store, self.config, self.name, self.signals = store, config, name, signals
        self.children: dict[int, ChildHandle] = {}
        #: exit status of processes that ended and are no child of ours to look after.
        self.foreign: dict[int, int] = {}
        self._numbers = 0
        #: queues that no child claims from (see reach.py).
        self.closed: frozenset[str] = frozenset()
        #: our ends of the channels to all that were forked here and live.
        self._channels: dict[int, Channel] = {}
        #: of the last ping; a pong of this or a later number was given after it.
        self.serial = 0

    def __iter__(self) -> Iterator[ChildHandle]:
        return iter(list(self.children.values()))

    def __len__(self) -> int:
        return len(self.children)

    def hold(self, name: str, held: Mapping[str, Mapping[int, int]], unasked: Sequence[str]) -> None:
        """Tell the child of that name what the store has for it."""
        for child in self:
            if child.name == name:
                child.hold(held, unasked)

    def close_queues(self, queues: frozenset[str]) -> None:
        """Nobody claims from these any more, and from all others."""
        self.closed = queues
        for child in self:
            child.shared.close_queues(queues)

    def of(self, lane: Lane) -> list[ChildHandle]:
        """The children of that lane that take jobs."""
        return [child for child in self.children.values() if child.lane is lane and not child.retiring]

    def ping(self) -> None:
        """Ask all children what they do; their answers come as they come."""
        self.serial += 1
        for child in self:
            child.ping(self.serial)

    def spawn(self, lane: Lane) -> ChildHandle:
        """Fork one child."""
        self._numbers += 1
        name = f"{self.name}:{self._numbers}:{token_hex(3)}"
        shared = SharedMemory(self.config.queue_names, self.config.threads_of(lane))
        shared.close_queues(self.closed)
        pid, ours = self.fork(partial(run_child, self.store, self.config, name, lane, shared))
        child = self.children[pid] = ChildHandle(name, lane, pid, ours, shared)
        return child

    def fork(self, live: Callable[[Channel, int], NoReturn]) -> tuple[int, Channel]:
        """Fork a process that does `live(its end of the channel, our process id)`.  Returns its id and our end.

        The parent has no threads, and no connection is open while it forks.  Raises OSError where the system has no
        room for another process."""
        self.store.close()
        database_connections.close_all()
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = pair()
        if not self._channels:
            gc.collect()
        # Objects that live now are shared with the children: the collector must not touch, and so copy, their pages.
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
            # The others must see the end of their channels when the parent ends, not when we do.
            self.abandon()
            ours.close()
            live(theirs, parent)
        theirs.close()
        if ACTIVE:
            crashpoint("supervisor.after_fork")
        self._channels[pid] = ours
        return pid, ours

    def abandon(self) -> None:
        """In a process that is not ours: let go of what is the parent's alone."""
        for channel in self._channels.values():
            channel.close()
        self.signals.close()

    def end(self) -> None:
        """SIGKILL them all."""
        for child in self:
            kill_group(child.pid)

    def forget(self, pid: int) -> None:
        """A process that was forked here has ended."""
        self._channels.pop(pid).close()

    def reap(self) -> list[tuple[ChildHandle, int]]:
        """Children that ended, with their exit status (negative: the signal).  Takes foreign ones along (PID 1)."""
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
                    kill_group(pid)  # what its jobs had started would go on while they run again elsewhere
                # What it said before it died: whether its job had ended.
                while child.channel.is_open and not child.channel.is_dry:
                    child.read()
                self.forget(pid)
                ended.append((child, os.waitstatus_to_exitcode(status)))
        return ended
