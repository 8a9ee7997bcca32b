"""Which child of this parent may run suspects: jobs held by a worker that died as a whole, parent and children.

Only one child at a time may run them, so that only one suspect runs on this worker at a time.  If this worker dies too,
only the suspect that was running is charged a second time, and not the others.

A suspect whose next crash would be its last begins only when nothing else runs in this worker: a job that has not
crashed yet may run beside it, and be the one that kills the worker.  Such a suspect waits with its claim.  Meanwhile
the other children claim nothing, and none is started.  The price: for as long as it waits and runs, this worker does
nothing else.  After it has waited in vain, it does other work for as long as it has waited.
"""

from __future__ import annotations

import logging
from math import inf

from django_jobs.core.values import Lane
from django_jobs.worker.messages import ClaimId, Close, MayBegin, MayRunSuspects, Open, YieldSuspects
from django_jobs.worker.parent.children import ChildHandle
from django_jobs.worker.parent.pool import ChildPool

logger = logging.getLogger("django_jobs.worker")

#: Seconds for which the child may run a job that is not a suspect before another child gets the right.
BUSY = 0.1
#: Time between two checks whether nothing else runs: in seconds, at first, and as a fraction of the time waited so far.
INTERVAL, FRACTION = 0.05, 1 / 20
#: Seconds for which a worker waits for the end of its other jobs, before it gives the suspect to another worker, which
#: may be idle.  The next time it waits twice as long.  After LONGEST the suspect begins beside the jobs that still run,
#: or it might never begin.  Together, this takes about an hour and a half.
PATIENCE, LONGEST = 30.0, 1920.0


class Suspects:
    """The right to run suspects.  One child has it; another gets it only after that child has confirmed that it runs
    none."""

    def __init__(self, child_pool: ChildPool) -> None:
        self.child_pool, self.child_processes = child_pool, child_pool.child_processes
        self._holder: ChildHandle | None = None
        self._wanted_back = False
        #: the claim that waits for its turn or has begun alone; since when, and may it begin.
        self._claim: ClaimId | None = None
        self._since, self._has_begun = 0.0, False
        #: number and time of the last ping to all children.
        self._serial, self._asked_at = 0, -inf
        self._patience = PATIENCE
        self._rests_until = -inf

    def due(self, now: float) -> float:
        """When `step` has to be called without a message (monotonic)."""
        return inf if self._claim is None or self._has_begun else now + self._interval(now)

    def _interval(self, now: float) -> float:
        return max(INTERVAL, (now - self._since) * FRACTION)

    def step(self, now: float) -> None:
        """Give the right to a child, or ask for it back if the child cannot use it."""
        self._let_one_begin(now)
        holder = self._holder
        if holder is not None and (holder.pid not in self.child_processes.children or holder.has_yielded):
            # A child that was reaped runs no suspect any more.
            self._holder = None
            self._give(now, but_not=holder)
        elif holder is None:
            self._give(now)
        elif not self._wanted_back and self._is_of_no_use(holder, now) and self._others(holder):
            self._take_back(holder)

    def _is_of_no_use(self, holder: ChildHandle, now: float) -> bool:
        job = holder.running_job()
        return holder.retiring or (job is not None and not job.suspect and now - job.at > BUSY)

    def _others(self, holder: ChildHandle | None) -> list[ChildHandle]:
        return [child for child in self.child_processes.of(Lane.ALONE) if child is not holder and not child.killed_for]

    def _give(self, now: float, but_not: ChildHandle | None = None) -> None:
        others = self._others(but_not) if now >= self._rests_until else []
        if others:
            # An idle child, or the one whose job started last: most jobs are short.
            self._holder = child = max(others, key=_started_at)
            self._wanted_back = child.has_yielded = False
            child.tell(MayRunSuspects())

    def _take_back(self, holder: ChildHandle) -> None:
        self._wanted_back = True
        holder.tell(YieldSuspects())

    # -- the last crash ----------------------------------------------------------------

    def _let_one_begin(self, now: float) -> None:
        """If the holder has a claim that waits: close the other children until that job has ended; let it begin when
        they run nothing."""
        holder = self._holder
        if holder is None or not self._waits(holder):
            self._go_on()
        elif holder.waits != self._claim:
            self._claim, self._since, self._has_begun = holder.waits, now, False
            self.child_pool.reserved = True
            text = "Job %s was lost with several workers: %s runs nothing else until it has ended"
            logger.warning(text, self._claim.id if self._claim else "", self.child_processes.name)
            self._ask(holder, now)
        elif not self._has_begun:
            if self._nothing_else_runs(holder, now):
                self._patience = PATIENCE
                self._begin(holder)
            elif now - self._since >= self._patience:
                self._lose_patience(holder, now)

    def _waits(self, holder: ChildHandle) -> bool:
        if holder.pid not in self.child_processes.children or holder.killed_for:
            return False
        was_revoked = holder.is_frozen and holder.running_job() is None  # see frozen.py
        return holder.waits is not None and not was_revoked

    def _nothing_else_runs(self, holder: ChildHandle, now: float) -> bool:
        """A closed child that has answered once that it runs nothing will not run anything."""
        statuses = [child.status for child in self.child_processes if child is not holder]
        if any(status.serial < self._serial for status in statuses):
            return False
        if all(status.idle for status in statuses):
            return True
        if now - self._asked_at >= self._interval(now):
            self._ask(holder, now)
        return False

    def _ask(self, holder: ChildHandle, now: float) -> None:
        for child in self.child_processes:
            if child is not holder:
                child.tell(Close())  # each time: a child that does not read its messages misses some
        self.child_processes.ping()
        self._serial, self._asked_at = self.child_processes.serial, now

    def _begin(self, holder: ChildHandle) -> None:
        self._has_begun = True
        self._answer(holder, begins=True)

    def _answer(self, holder: ChildHandle, *, begins: bool) -> None:
        if self._claim is not None:
            holder.tell(MayBegin(self._claim, begins=begins))

    def _lose_patience(self, holder: ChildHandle, now: float) -> None:
        id = holder.waits.id if holder.waits else ""
        logger.warning(
            "Job %s has waited %.0f s for the other jobs of %s", id, self._patience, self.child_processes.name
        )
        if self._patience >= LONGEST:
            self._begin(holder)
            return
        # Time for others to claim it.  While many suspects wait, each worker spends at most half of its time on that.
        self._rests_until = now + self._patience
        self._patience *= 2
        self._take_back(holder)
        self._answer(holder, begins=False)
        holder.waits = None
        self._go_on()

    def _go_on(self) -> None:
        """Let the other children claim again."""
        self._claim = None
        if self.child_pool.reserved:
            self.child_pool.reserved = False
            if not (self.child_pool.quiet or self.child_pool.fenced):
                for child in self.child_processes:
                    child.tell(Open())


def _started_at(child: ChildHandle) -> float:
    """Return when its job started (monotonic seconds); infinity for an idle child."""
    job = child.running_job()
    return inf if job is None else job.at
