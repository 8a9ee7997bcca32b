"""Keeps the number of children: starts them, replaces those that died, kills those whose job exceeds its time limit."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

from django_jobs.core.values import Lane
from django_jobs.worker.batch_memory import LastBatch
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.messages import Close
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses
from django_jobs.worker.parent.dead_children import DeadChildren
from django_jobs.worker.parent.status import memory_of
from django_jobs.worker.retry import RetryState

logger = logging.getLogger("django_jobs.worker")

#: Seconds for which idle alone children beyond the first are kept.
ALONE_IDLE = 10.0
#: Seconds that all alone children may be busy before another is started: the next job waits for jobs that are shorter.
ALONE_BUSY = 0.1
#: Seconds between two looks whether the jobs of busy alone children compute or wait for something.
LOOK = 0.02


class ChildPool:
    """Keeps `processes` shared children, and alone children: one idle, and more while all are busy."""

    def __init__(
        self,
        config: WorkerConfig,
        child_processes: ChildProcesses,
        dead_children: DeadChildren,
        crash_loop: CrashLoop,
        give_up: Callable[[], None],
    ) -> None:
        """`give_up()` is called when children die as soon as they start, again and again."""
        self.config, self.child_processes, self.dead_children, self.crash_loop, self.give_up = (
            config,
            child_processes,
            dead_children,
            crash_loop,
            give_up,
        )
        #: why children claim nothing: an operator asked for quiet; our leases cannot be renewed.
        self.quiet = self.fenced = False
        #: only one child works, and none is started: it has a suspect that must run without others (see suspects.py).
        self.reserved = False
        #: monotonic: no child is started before this time, after a crash loop or a failed fork.
        self.no_spawn_before = 0.0
        self._no_room = RetryState("Starting a process that runs jobs", of_store=False)
        #: decaying average of the share of busy alone children whose job sleeps, and when they were looked at last.
        self._sleeping, self._looked = 0.0, -inf

    def fill_up(self, now: float) -> None:
        """Start missing children; retire an idle child that is not needed."""
        if self.fenced or self.reserved or now < self.no_spawn_before:
            return
        if not self._fill_up_shared():
            return
        alone = self.child_processes.of(Lane.ALONE)
        idle = [child for child in alone if not child.is_busy]
        if not alone:
            self._spawn(Lane.ALONE)
        elif not idle and len(alone) < self.config.most_alone and not self.quiet:
            if self._are_too_few(alone, now):
                self._spawn(Lane.ALONE)
        elif len(idle) > 1:
            longest = min(idle, key=lambda child: child.idle_since)
            if now - longest.idle_since > ALONE_IDLE:
                longest.retire()

    def _are_too_few(self, alone: Sequence[ChildHandle], now: float) -> bool:
        """Would another process help?  All of these have jobs.

        Not if their jobs are short and compute: then as many as there are processors do the most."""
        jobs = [job for child in alone if (job := child.running_job()) is not None]
        long = [job for job in jobs if now - job.at > ALONE_BUSY]
        if len(alone) - len(long) < self.config.processes:
            return bool(long) or any(job.left > 0 for job in jobs)
        if now - self._looked >= LOOK and any(job.left > 0 for job in jobs):
            # One look says little: a job that computes sleeps now and then.
            self._looked = now
            sleeping = sum(job_sleeps(child) for child in alone)
            self._sleeping += (sleeping / len(alone) - self._sleeping) / 4
            if self._sleeping > 0.5:
                self._sleeping = 0.0
                return True
        return False

    def _fill_up_shared(self) -> bool:
        """Start missing shared children.  A child that a job has frozen is replaced, which may double the number of
        processes; when it resumes, the youngest surplus child retires.  False: a process cannot be started."""
        most, shared = self.config.processes, self.child_processes.of(Lane.SHARED)
        working = [child for child in shared if not child.is_frozen]
        for _ in range(min(most - len(working), 2 * most - len(shared))):
            if not self._spawn(Lane.SHARED):
                return False
        for child in working[most:]:
            child.retire()
        return True

    def _spawn(self, lane: Lane) -> bool:
        try:
            child = self.child_processes.spawn(lane)
        except OSError as error:
            # The system cannot start a process or open its channel.  The others continue.  A later try may succeed.
            self.no_spawn_before = max(self.no_spawn_before, monotonic() + self._no_room.failed(error))
            return False
        self._no_room.worked()
        if self.quiet:
            child.tell(Close())
        return True

    def reap(self, now: float) -> None:
        """Reap the children that ended, and have their claims taken back."""
        for child, status in self.child_processes.reap():
            # The shared memory survives the child.
            self.dead_children.totals.ended(child.shared.tally)
            left = child.shared.last_batch() if child.lane is Lane.ALONE else LastBatch()
            # Not if the function had just returned or the next job had begun.
            is_over_time = child.killed_for == "timeout" and child.job_is_over_time(now)
            job = child.running_job() if is_over_time else None
            if job is not None:
                logger.warning("Job %s ran longer than its time limit: its process was killed", job.id)
                self.dead_children.timed_out(child.name, left, job)
            elif (child.killed_for and not is_over_time) or (
                status == 0 and child.retiring
            ):  # else a job called os._exit(0)
                self.dead_children.ended(child.name, left)
            else:
                logger.error("Worker process %s (pid %d) died: %s", child.name, child.pid, _cause(status))
                self.dead_children.crashed(child.name, left)
                self.no_spawn_before = max(self.no_spawn_before, now + self.crash_loop.died(now))
                if self.crash_loop.is_hopeless:
                    self.give_up()

    def keep_time_limits(self, now: float) -> None:
        """Kill the alone children whose job has exceeded its time limit."""
        for child in self.child_processes:
            if child.job_is_over_time(now):
                child.kill("timeout")

    def replace_fat_children(self) -> None:
        """Retire children that use more than `max_memory`: they end when their running jobs have ended."""
        for child in self.child_processes:
            if not child.retiring and memory_of(child.pid) > self.config.max_memory << 20:
                logger.info("%s uses more than %d MiB and is replaced", child.name, self.config.max_memory)
                child.retire()

    def next_moment(self, now: float) -> float:
        """When the pool may have to act without a message or a signal (monotonic)."""
        moments = [now + 1.0]
        if self.no_spawn_before > now:
            moments.append(self.no_spawn_before)
        for child in self.child_processes:
            if child.is_busy:
                if (deadline := child.shared.deadline) is not None and not child.killed_for:
                    moments.append(deadline)
                job = child.running_job()
                moments.append(max(now if job is None else job.at + ALONE_BUSY, now + ALONE_BUSY / 5))
        return min(moments)


def job_sleeps(child: ChildHandle) -> bool:
    """Does its job wait for something, so that the processor is free?  True where /proc does not tell."""
    thread = child.shared.thread_of_job()
    if thread is None:
        return False
    try:
        with open(f"/proc/{child.pid}/task/{thread.id}/stat", "rb") as file:
            sleeps = file.read().rpartition(b")")[2].split()[0] != b"R"
    except OSError:
        sleeps = True
    return sleeps and child.shared.thread_of_job() == thread  # else it slept after that job, in a call to the store


def _cause(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
