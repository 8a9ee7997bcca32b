"""How many children there are: started, replaced when they die, killed when their job takes too long."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from time import monotonic

from django_jobs.core.values import Lane
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.parent.dead_children import DeadChildren
from django_jobs.worker.retry import RetryState

logger = logging.getLogger("django_jobs.worker")

#: Seconds an alone child beyond the first stays ready.
ALONE_IDLE = 10.0
#: Seconds the last idle alone child may be busy before another is made ready: shorter jobs wait for it instead.
ALONE_BUSY = 0.1


class ChildPool:
    """Keeps `processes` shared children, and alone ones: one ready, more while they are all busy."""

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
        #: children claim nothing: an operator asked for quiet; our leases cannot be renewed.
        self.quiet = self.fenced = False
        #: monotonic: after a crash loop, or where there is no room for a process, no child is started before.
        self.no_spawn_before = 0.0
        self._no_room = RetryState("Starting a process that runs jobs")

    def fill_up(self, now: float) -> None:
        """Start the children that are missing; let an idle one too many go."""
        if self.fenced or now < self.no_spawn_before:
            return
        if not self._fill_up_shared():
            return
        alone = self.child_processes.of(Lane.ALONE)
        idle = [child for child in alone if child.job is None]
        if not alone:
            self._spawn(Lane.ALONE)
        elif not idle and len(alone) < self.config.most_alone and not self.quiet:
            jobs = [child.job for child in alone if child.job is not None]
            if any(job.left > 0 or now - job.at > ALONE_BUSY for job in jobs):
                self._spawn(Lane.ALONE)
        elif len(idle) > 1:
            longest = min(idle, key=lambda child: child.idle_since)
            if now - longest.idle_since > ALONE_IDLE:
                longest.retire()

    def _fill_up_shared(self) -> bool:
        """One that is frozen by a job is replaced while that lasts, at the price of up to as many processes again; when
        it goes on, the youngest one too many goes.  False: there is no room for a process."""
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
            # No room for another process, or no file for its channel: what runs goes on, and this may pass.
            self.no_spawn_before = max(self.no_spawn_before, monotonic() + self._no_room.failed(error))
            return False
        self._no_room.worked()
        if self.quiet:
            child.tell("close")
        return True

    def reap(self, now: float) -> None:
        """Take note of the children that ended; what they held is taken back."""
        for child, status in self.child_processes.reap():
            # Not where its function had just returned, or the next one begun: what it shows stays after its death.
            if child.killed_for == "timeout" and child.job is not None and child.job_is_over_time(now):
                logger.warning("Job %s ran longer than its time limit: its process was killed", child.job.id)
                self.dead_children.timed_out(child.name, child.job)
            elif child.killed_for or (status == 0 and child.retiring):  # else a job called os._exit(0)
                self.dead_children.ended(child.name)
            else:
                logger.error("Worker process %s (pid %d) died: %s", child.name, child.pid, _cause(status))
                self.dead_children.crashed(child.name)
                self.no_spawn_before = max(self.no_spawn_before, now + self.crash_loop.died(now))
                if self.crash_loop.is_hopeless:
                    self.give_up()

    def keep_time_limits(self, now: float) -> None:
        """Kill the alone children whose job has run for its time."""
        for child in self.child_processes:
            if child.job_is_over_time(now):
                child.kill("timeout")

    def replace_fat_children(self) -> None:
        """Let go of children that use more than `max_memory`, once what they run has ended."""
        for child in self.child_processes:
            if not child.retiring and child.memory() > self.config.max_memory << 20:
                logger.info("%s uses more than %d MiB and is replaced", child.name, self.config.max_memory)
                child.retire()

    def next_moment(self, now: float) -> float:
        """When there may be something to do here without a message or a signal (monotonic)."""
        moments = [now + 1.0]
        if self.no_spawn_before > now:
            moments.append(self.no_spawn_before)
        for child in self.child_processes:
            if child.job is not None:
                if child.job.deadline is not None and not child.killed_for:
                    moments.append(child.job.deadline)
                moments.append(max(child.job.at + ALONE_BUSY, now + ALONE_BUSY / 5))
        return min(moments)


def _cause(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
