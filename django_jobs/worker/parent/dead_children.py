"""Records the end of a child in the store: takes its claims back, and reports an exceeded time limit.

Each step makes one call to the store and repeats it until it succeeds.  If this process ends first, the leases run out
and another worker recovers the jobs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from django_jobs.conf.release import release
from django_jobs.core.attempt import Attempted
from django_jobs.core.values import State
from django_jobs.events.announce import announce_recovered
from django_jobs.events.signal_events import Deliver
from django_jobs.exceptions import StoreError
from django_jobs.execution.settle import (
    after_ends,
    as_done,
    end,
    failed_elsewhere,
    over_time,
    settle_successes,
    succeeded_elsewhere,
)
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.redis import Store
from django_jobs.worker.batch_memory import Asked, LastBatch, StartedJob
from django_jobs.worker.retry import RetryState
from django_jobs.worker.tally import Totals

logger = logging.getLogger("django_jobs.worker")

_LIMIT = 100


@dataclass
class _DeadChild:
    worker: str
    #: True: the child died by itself, which counts as a crash of its jobs; False: we ended it, which does not count.
    crashed: bool
    queues: deque[str]
    #: the job whose time limit was the reason to kill the child, and how its attempt ends, once that is decided: a call
    #: that was not answered is repeated unchanged.
    timed_out: StartedJob | None = None
    verdict: Attempted | None = None
    #: what it had not recorded of its last batch.
    left: LastBatch = field(default=LastBatch())
    recovered: int = field(default=0)


class DeadChildren:
    """The children that ended, oldest first; each `step` makes one call."""

    def __init__(self, store: Store, queues: Sequence[str], blamed: Callable[[], None], deliver: Deliver) -> None:
        """`blamed()` is called when a crashed child turns out to have held jobs.  `deliver(signal_event)` sends the
        signals about them through a process that may wait for their receivers."""
        self.store, self.queues, self.blamed, self.deliver = store, queues, blamed, deliver
        self.retry_state = RetryState("Recovering the jobs of a child process that ended")
        self.due = 0.0
        #: how the attempts of all children have ended.
        self.totals = Totals()
        self._dead_children: deque[_DeadChild] = deque()

    def __len__(self) -> int:
        return len(self._dead_children)

    def crashed(self, worker: str, left: LastBatch) -> None:
        """The child died: its jobs run again, alone, and the crash counts for them."""
        self._dead_children.append(_DeadChild(worker, True, deque(self.queues), left=left))

    def ended(self, worker: str, left: LastBatch) -> None:
        """The child ended as it was told to, or was killed through no fault of its jobs: they run again, uncharged."""
        self._dead_children.append(_DeadChild(worker, False, deque(self.queues), left=left))

    def timed_out(self, worker: str, left: LastBatch, job: StartedJob) -> None:
        """The child was killed because the job that ran there exceeded its time limit."""
        self._dead_children.append(_DeadChild(worker, False, deque(self.queues), job, left=left))

    def step(self, now: float) -> None:
        """Make one call for the oldest dead child, if there is one and its time has come."""
        if not self._dead_children or now < self.due:
            return
        dead_child = self._dead_children[0]
        try:
            if dead_child.timed_out is not None:
                dead_child.verdict = dead_child.verdict or self._verdict(dead_child.worker, dead_child.timed_out)
                if dead_child.verdict and (recorded := end(self.store, dead_child.verdict, self.deliver)):
                    self.totals.recorded([recorded])
                dead_child.timed_out = None
            elif dead_child.left.returned:
                self._record_returned(dead_child)
                dead_child.left = dead_child.left._replace(returned=())
            elif dead_child.left.not_begun:
                # Before the other claims: a crash counts for these only.
                self.store.release(dead_child.left.not_begun[0].queue, dead_child.left.not_begun)
                dead_child.left = dead_child.left._replace(not_begun=())
            elif dead_child.left.asked is not None:
                self._release_unnoted(dead_child.worker, dead_child.left.asked)
                dead_child.left = LastBatch()
            elif self._take_back(dead_child, dead_child.queues[0]) < _LIMIT:
                dead_child.queues.popleft()
            self.retry_state.worked()
        except StoreError as error:
            self.due = monotonic() + self.retry_state.failed(error)
            # Another dead child may concern a queue that works.
            dead_child.queues.rotate(-1)
            self._dead_children.rotate(-1)
            return
        except Exception:
            # An error of our own in deciding about one job: hand back the child's jobs without recording the timeout.
            logger.exception("The end of a job of %s could not be recorded; it runs again", dead_child.worker)
            if dead_child.timed_out is None and not dead_child.left.returned:
                dead_child.queues.popleft()
            elif dead_child.timed_out is None:
                dead_child.left = dead_child.left._replace(returned=())
            dead_child.timed_out = None
        if not dead_child.queues:
            self._dead_children.popleft()

    def _take_back(self, dead_child: _DeadChild, queue: str) -> int:
        if not dead_child.crashed:
            if ACTIVE:
                crashpoint("shutdown.before_handback")
            moved = self.store.release_worker(queue, dead_child.worker, limit=_LIMIT)
            if ACTIVE:
                crashpoint("shutdown.mid_handback")
            self.totals.recovered(moved)
            announce_recovered(queue, [job for job in moved if job.state is not State.QUEUED], self.deliver)
            return len(moved)
        recovered = self.store.recover(queue, worker=dead_child.worker, limit=_LIMIT)
        if ACTIVE:
            crashpoint("reap.mid_batch")
        self.totals.recovered(recovered)
        announce_recovered(queue, recovered, self.deliver)
        if recovered and not dead_child.recovered:
            self.blamed()
        dead_child.recovered += len(recovered)
        return len(recovered)

    def _release_unnoted(self, worker: str, asked: Asked) -> None:
        """Hand back what the child had claimed and not noted.  Without this, a child that dies between a claim call and
        its note would be a crash of the whole batch."""
        claims = [claim for claim in self.store.holdings(asked.queue, worker) if claim.token > asked.newest]
        if claims:
            self.store.release(asked.queue, claims)

    def _record_returned(self, dead_child: _DeadChild) -> None:
        """Record the jobs that had succeeded: otherwise they would run again, because another job ended the child."""
        queue = dead_child.left.returned[0].claim.queue
        held = {(claim.id, claim.token): claim for claim in self.store.holdings(queue, dead_child.worker)}
        attempts = [
            succeeded_elsewhere(claim, one.result, one.run_ms)
            for one in dead_child.left.returned
            if (claim := held.get((one.claim.id, one.claim.token))) is not None
        ]
        if attempts:
            recorded = settle_successes(self.store, queue, attempts, [as_done(one) for one in attempts])
            self.totals.recorded(recorded)
            after_ends(self.store, queue, recorded, self.deliver)

    def _verdict(self, worker: str, job: StartedJob) -> Attempted | None:
        info = self.store.get(job.queue, job.id)
        if info is None or info.state is not State.RUNNING or info.token != job.token:
            return None  # the attempt ended at the last moment, or a person moved the job: leave that as it is
        claim = info.claim._replace(worker=worker)
        error = over_time((job.timeout or 0) / 1000)
        ran = int((monotonic() - job.at) * 1000)
        return failed_elsewhere(claim, error, "timeout", self.store.now(), ran, release())
