"""The parent process: starts its children, renews their leases, enforces their time limits, and stops them in order.

It has one thread and runs no jobs, so no job can hold it up.  Every turn of its loop looks after the children first.
Then it makes at most a few calls to the store, each limited by the store's own timeouts.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Sequence
from time import monotonic

from django_jobs import remote
from django_jobs.core.values import Lane
from django_jobs.events.receivers import say_started, say_stopped
from django_jobs.exceptions import StoreError
from django_jobs.runtime import forks
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.crash_loop import CrashLoop
from django_jobs.worker.maintenance.tasks import ExtraTask
from django_jobs.worker.messages import Close, Drain, Message, Open
from django_jobs.worker.os_signals import Signals
from django_jobs.worker.parent import reload
from django_jobs.worker.parent.burst import Burst
from django_jobs.worker.parent.children import ChildProcesses
from django_jobs.worker.parent.dead_children import DeadChildren
from django_jobs.worker.parent.frozen import FrozenChildren
from django_jobs.worker.parent.health import Health
from django_jobs.worker.parent.heartbeat import Heartbeat
from django_jobs.worker.parent.heartbeat_answers import HeartbeatAnswers
from django_jobs.worker.parent.maintenance_monitor import MaintenanceMonitor
from django_jobs.worker.parent.pool import ChildPool
from django_jobs.worker.parent.queue_capacity import QueueCapacity
from django_jobs.worker.parent.status import WorkerStatus
from django_jobs.worker.parent.suspects import Suspects
from django_jobs.worker.parent.timer import ParentTimer
from django_jobs.worker.retry import RetryState

logger = logging.getLogger("django_jobs.worker")

#: Seconds after the drain for handing back claims and calling signal receivers.  Jobs whose claims were not handed back
#: by then are recovered when their leases end.
LAST_WORDS = 4.0


class Supervisor:
    """`run()` works until a signal, a command, `--burst` or `--drain` ends it.  Returns the exit status."""

    def __init__(self, store: Store, config: WorkerConfig, extra_tasks: Sequence[ExtraTask] = ()) -> None:
        self.store, self.config = store, config
        self.name = config.name or f"{socket.gethostname()}:{os.getpid()}"
        if self.name.startswith("remote:"):
            # Holders with this prefix stand for jobs in remote workers, which are never recovered from a lost worker.
            self.name = f"worker:{self.name}"
        self.signals, crash_loop = Signals(), CrashLoop()
        self.child_processes = ChildProcesses(store, config, self.name, self.signals)
        self.maintenance = MaintenanceMonitor(self.child_processes, extra_tasks)
        self.dead_children = DeadChildren(store, config.queue_names, crash_loop.forgive, self.maintenance.announce)
        self.child_pool = ChildPool(config, self.child_processes, self.dead_children, crash_loop, self._give_up)
        self.timer, self.suspects = ParentTimer(self._keep_time, self._last_resort), Suspects(self.child_pool)
        self.frozen = FrozenChildren(store, self.child_processes)
        answers = HeartbeatAnswers(store, self.child_processes)
        self.capacity = QueueCapacity(config.served, config.lease, self.child_processes, keeps_all=config.ends_itself)
        self.worker_status = WorkerStatus(config, self.name, self.child_processes, self.dead_children.totals)
        self.heartbeat = Heartbeat(
            store,
            config,
            self.name,
            workers=lambda: [child.name for child in self.child_processes],
            describe=self.worker_status.describe,
            asked_to_stop=answers.asked_to_stop,
            command=self._command,
            holds_nothing=answers.holds_nothing,
            holds=self.child_processes.hold,
            capacity=self.capacity,
        )
        self.health = Health(config, self.child_processes, self.heartbeat, self.worker_status)
        burst = Burst(store, config.queue_names, self.child_processes, self.capacity.look, up_to=config.drain)
        self.burst = burst if config.ends_itself else None
        self._burst_retry_state = RetryState("Checking whether all jobs have run")
        #: monotonic: when running jobs are killed; None unless the worker is stopping.
        self.deadline: float | None = None
        self.status = self._stops_seen = 0
        self.code_has_changed = False  # with --reload: the worker must start again after it has ended

    def run(self) -> int:
        self.signals.install(for_parent=True)
        forks.guard(self.child_processes.abandon)
        self.timer.install()
        remote.be_told()
        logger.info("Worker %s starts: %s", self.name, self.worker_status.summary())
        say_started(self.name)
        self._learn_uptime()
        watcher = reload.Watcher(self.child_processes) if self.config.reload else None
        try:
            while not self._is_over():
                self._turn()
                if watcher is not None and self.deadline is None and watcher.has_seen_a_change(monotonic()):
                    self.code_has_changed = True
                    self.stop("code has changed")
                self.child_processes.foreign.clear()
        finally:
            self.maintenance.end()
            self.health.end()
            if watcher is not None:
                watcher.end()
            self.child_processes.end()
        self.maintenance.wait()
        self._deregister()
        self.signals.ignore()
        say_stopped(self.name)
        logger.info("Worker %s has stopped", self.name)
        return self.status

    def _turn(self) -> None:
        self._listen(self._pause(monotonic()))
        now = monotonic()
        self._see_signals()
        self.child_pool.reap(now)
        self.maintenance.look_after(now)
        self._keep_time(now)
        self.health.step(now)
        with self.timer.looking():
            self._keep_leases(now)
        if self.deadline is None:
            self.child_pool.fill_up(now)
        elif now < self.deadline and not self.child_processes:
            self.deadline = now
        self.suspects.step(now)
        if self.heartbeat.retry_state.is_on:
            return  # at most one call per turn may wait for a silent store: the children need us
        with self.timer.looking():
            self.dead_children.step(now)
            self.frozen.step(now)
            self.capacity.step(now)
            if self.deadline is None and self.burst is not None and self._burst_is_over(self.burst, now):
                self.stop("everything has run")
        if self.deadline is None and self.config.max_memory and self.worker_status.is_new:
            self.child_pool.replace_fat_children()

    def _keep_time(self, now: float) -> None:
        """Kill the jobs that are over their time limit, and all jobs when the drain timeout is over."""
        self.child_pool.keep_time_limits(now)
        if self.deadline is not None and now >= self.deadline:
            for child in self.child_processes:
                child.kill("drain")

    def _is_over(self) -> bool:
        if self.deadline is None or self.child_processes:
            return False
        return not (self.dead_children or self.maintenance.unsent_signals) or monotonic() > self.deadline + LAST_WORDS

    def _pause(self, now: float) -> float:
        moments = [self.heartbeat.due, self.child_pool.next_moment(now), self.suspects.due(now), self.health.due]
        if self.deadline is not None and now < self.deadline:
            moments.append(self.deadline)
        if not self.heartbeat.retry_state.is_on:
            moments += [self.frozen.due, self.capacity.due]
            if self.dead_children:
                moments.append(self.dead_children.due)
            if self.deadline is None and self.burst is not None and self._burst_may_end(now):
                moments.append(self.burst.due)
        return max(min(moments) - now, 0.0)

    def _listen(self, timeout: float) -> None:
        talking = {child.channel.fileno(): child for child in self.child_processes if child.channel.is_open}
        maintenance = self.maintenance.fileno()
        filenos = [self.signals.fileno(), *talking, *(() if maintenance is None else (maintenance,))]
        for fileno in select.select(filenos, [], [], timeout)[0]:
            if fileno == self.signals.fileno():
                self.signals.clear()
            elif fileno == maintenance:
                self.maintenance.read()
            else:
                talking[fileno].read()

    # -- stopping ----------------------------------------------------------------

    def _see_signals(self) -> None:
        if self.signals.stops == self._stops_seen:
            return
        self._stops_seen = self.signals.stops
        self.stop("told to stop", self.signals.stopped_at)
        if self._stops_seen > 1:
            logger.warning("Worker %s was told to stop twice: it stops now", self.name)
            self._let_jobs_run_until(self.signals.stopped_at)

    def stop(self, why: str, ordered_at: float | None = None) -> None:
        """Stop claiming; running jobs may end until the drain timeout.  It counts from `ordered_at` (monotonic; None:
        now), as for platforms that send SIGKILL later: this process may have waited for a silent store since."""
        if self.deadline is not None:
            return
        timeout = self.config.drain_timeout
        logger.info("Worker %s stops (%s); running jobs have %g s", self.name, why, timeout)
        self._let_jobs_run_until((monotonic() if ordered_at is None else ordered_at) + timeout)
        self.worker_status.state = "stopping"
        self.maintenance.retire()
        for child in self.child_processes:
            child.retiring = True
            child.tell(Drain())

    def _let_jobs_run_until(self, deadline: float) -> None:
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)
        self.timer.end_at(self.deadline + LAST_WORDS + 0.5)

    def _give_up(self) -> None:
        logger.critical("Worker processes of %s die as soon as they start: the worker gives up", self.name)
        self.status = 1
        self.stop("crash loop")

    def _last_resort(self) -> None:
        self.maintenance.end()
        self.health.end()
        self.child_processes.end()
        os._exit(self.status)

    def _deregister(self) -> None:
        if not self.heartbeat.retry_state.is_on:
            try:
                self.maintenance.leave()
                self.store.forget_worker(self.name)
            except StoreError as error:
                logger.warning("Worker %s could not tell the store that it stops: %s", self.name, error)
        self.timer.end_at(None)

    # -- leases ------------------------------------------------------------------

    def _keep_leases(self, now: float) -> None:
        heartbeat = self.heartbeat
        was_out, last = heartbeat.retry_state.is_on, heartbeat.last_round
        heartbeat.step(now)
        # If we could not renew, perhaps no worker could.  A gap of less than half a lease costs no worker its lease.
        if heartbeat.last_round - last > heartbeat.lease / 2:
            self.maintenance.spare_expired_leases(heartbeat.lease)
        elif monotonic() - heartbeat.last_round > heartbeat.lease / 2:
            self.maintenance.spare_expired_leases(heartbeat.interval)
        if was_out and not heartbeat.retry_state.is_on and self.child_pool.fenced:
            self.child_pool.fenced = False
            self._tell_all(Close() if self.child_pool.quiet or self.child_pool.reserved else Open())
        if heartbeat.should_fence:
            self._fence()
        # Without --burst the worker waits for the store and runs nothing.  With --burst its caller waits for its end.
        if self.burst is not None and heartbeat.is_hopeless and self.status == 0:
            logger.critical("Worker %s could not renew its leases for twice their length: it ends", self.name)
            self.status = 1
            self.deadline = now - LAST_WORDS

    def _fence(self) -> None:
        """Other workers will soon run our jobs: stop the jobs before they start there."""
        if not self.child_pool.fenced:
            self.child_pool.fenced = True
            logger.error("Worker %s cannot renew its leases: its jobs are ended, and it waits for the store", self.name)
            self._tell_all(Close())
        for child in self.child_processes:
            if child.lane is Lane.ALONE or self.heartbeat.has_lost_leases:
                child.kill("fenced")

    def _learn_uptime(self) -> None:
        """A store that has just started may hold leases that no worker could renew while it was down: spare them."""
        try:
            uptime = self.store.describe().get("uptime_seconds", "")
        except StoreError:
            uptime = "0"
        if uptime.isdigit() and int(uptime) < self.heartbeat.lease:
            self.maintenance.spare_expired_leases(self.heartbeat.lease)

    # -- what the store answers ------------------------------------------------------

    def _command(self, word: str) -> None:
        match word:
            case "stop":
                self.stop("an operator asked")
            case "quiet":
                self.child_pool.quiet = True
                self.worker_status.state = "quiet"
                self._tell_all(Close())
            case _:
                logger.warning("Worker %s does not know the command %r", self.name, word)

    def _tell_all(self, message: Message) -> None:
        for child in self.child_processes:
            child.tell(message)

    def _burst_may_end(self, now: float) -> bool:
        """False while jobs of dead children are not settled, a maintenance task has not run once, or signal receivers
        have not been called: each of these may add jobs."""
        return not self.dead_children and self.maintenance.has_begun(now) and self.maintenance.has_told(now)

    def _burst_is_over(self, burst: Burst, now: float) -> bool:
        if not self._burst_may_end(now):
            return False
        try:
            return burst.step(now)
        except StoreError as error:
            burst.due = now + self._burst_retry_state.failed(error)
            return False
