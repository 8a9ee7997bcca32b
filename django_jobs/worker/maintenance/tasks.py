"""Work on the store that any worker does for all: recover the jobs of lost workers, delete old jobs, repair queues.

Each step is a few bounded calls to the store, so that its process can read its parent's messages in between.

Long because it is one heap: when each task is due again is decided where the task is done.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from math import inf
from time import monotonic
from typing import Protocol, runtime_checkable
from uuid import uuid4

from django_jobs.core import registry
from django_jobs.events.announce import announce_expired, announce_misplaced, announce_recovered
from django_jobs.events.signal_events import Deliver, send
from django_jobs.exceptions import StoreError, StoreFull, StoreUnavailable
from django_jobs.formatting import counted
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_BATCH
from django_jobs.worker.retry import RetryState

logger = logging.getLogger("django_jobs.worker")

_LIMIT = 100
#: Seconds between two runs of a maintenance task that found no more to do.
RECOVER, PRUNE, RECONCILE = 5.0, 30.0, 10.0
#: The same for a queue that has not changed: its old statistics and answers are deleted.
PRUNE_ANYWAY = 3600.0
#: The same after a repair found something, or while it is in the middle of a queue.
SOON = 0.5
#: The most that checks take of the time of all processes together, and so of the server's: if many large queues change,
#: each of them is checked less often.
SHARE = 0.02
#: But not less often than this, in seconds.
LONGEST_ROUND = 300.0
#: Seconds that another process waits for one that should have checked a queue.
TURN = 20.0
#: Number of queues that one call samples.
SAMPLED = 20
#: Seconds after which a call to a store that does not answer fails (stores/redis/connection/transport.py: DEADLINE).
LONGEST_CALL = 5.0
#: This repair is not a sign of an inconsistency: a waiting job is also admitted while the one before it waits for a
#: free thread.
EARLY_ADMISSION = "waiter_without_limit"
#: Nor these: jobs that failed before there was an index, or under a worker of an older version, which does not keep it.
INDEX = ("failed_without_index", "index_without_failed")


class ExtraTask(Protocol):
    """A task besides those of the store: periodic jobs, the archive."""

    def tick(self) -> float | None:
        """Do the tasks that are due.  Returns the seconds until the next call (None: a minute)."""
        ...


@runtime_checkable
class Leaves(Protocol):
    """A task that holds something in the store while its worker runs."""

    def leave(self) -> None:
        """Give it back.  The parent calls this when the worker has stopped, and the maintenance process is gone.
        Raises StoreError."""
        ...


class MaintenanceTasks:
    """A heap of tasks, ordered by the time at which they are due."""

    def __init__(
        self,
        store: Store,
        queues: Sequence[str] | None,
        lease: int,
        extra_tasks: Sequence[ExtraTask] = (),
        deliver: Deliver = send,
        others: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """`queues`: a list that may grow; None: only the extra tasks.  `lease` in ms; `deliver(signal_event)` sends the
        signals about recovered jobs.  `others()`: queues, at this moment, that no worker serves and this process should
        look after, too."""
        self.store, self.lease, self.deliver = store, lease / 1000, deliver
        self.retry_state = RetryState("Maintenance")
        #: number of the task → the error, of tasks whose last call the store refused.
        self.refused: dict[int, str] = {}
        #: monotonic: expired leases are left alone until then.
        self.grace_until = 0.0
        self._worked_at = monotonic()
        self._heap: list[tuple[float, int, Callable[[], float]]] = []
        self._started = 0
        self._own, self._others = queues or (), others
        #: of the others, those that could be read.
        self._looked_after: list[str] = []
        self._recover_every = min(RECOVER, self.lease / 6)
        #: what is to be done in which queues, as long as it is on the heap.
        self._waiting: set[tuple[str, str]] = set()
        #: queue → when jobs were last deleted in it (monotonic); queue → its sizes when it was last found consistent.
        self._pruned: dict[str, float] = {}
        self._sound: dict[str, str] = {}
        #: the limits of job types by which blocked jobs were let in, and how far that is.
        self._limits = ""
        self._reached: dict[str, bytes] = {}
        self._walk = count()
        self._has_looked = queues is None
        #: of all processes that maintain a queue, one checks it: who we are, and when we may ask again (monotonic).
        self._name = uuid4().hex
        self._not_before: dict[str, float] = {}
        #: the queues to be checked, one after the other, with their sizes.
        self._unchecked: dict[str, str | None] = {}
        #: how many queues any process should check now, and how many seconds the last check took.
        self._changed, self._took = 0, 0.0
        #: is `_check_next` on the heap, and when it may run (monotonic).
        self._checks, self._next_check = False, 0.0
        if queues is not None:
            self._add(self._look_for_lapsed)
            self._add(self._look_for_upkeep)
        for extra_task in extra_tasks:
            self._add(lambda t=extra_task: _tick(t))  # type: ignore[misc]
        self._pause_until = 0.0

    @property
    def queues(self) -> list[str]:
        """The queues that are looked after at this moment."""
        return [*self._own, *self._looked_after]

    def _add(self, task: Callable[[], float], at: float = 0.0) -> None:
        self._started += 1
        heapq.heappush(self._heap, (max(at, monotonic()), self._started, task))

    def _once(self, what: str, queue: str, task: Callable[[], float], at: float = 0.0) -> None:
        """Do this in the queue, and go on while the task asks to be called again soon."""
        if (what, queue) in self._waiting:
            return
        self._waiting.add((what, queue))

        def work() -> float:
            pause = task()
            if pause <= SOON:
                return pause
            self._waiting.discard((what, queue))
            return inf

        self._add(work, at)

    @property
    def due(self) -> float:
        """When the next step is due (monotonic)."""
        return max(self._heap[0][0], self._pause_until)

    def step(self, now: float) -> None:
        """Do the maintenance task that is most overdue, if one is due."""
        if now < self.due:
            return
        _, number, task = heapq.heappop(self._heap)
        pause = 1.0
        try:
            pause = task()
            if (self.retry_state.is_on or self.refused) and monotonic() - self._worked_at > self.lease / 2:
                self.spare_expired_leases(self.lease)  # the store is back, and this task was the first to notice
            self.retry_state.worked()
            self._worked_at = monotonic()
            if (over := self.refused.pop(number, None)) and over not in self.refused.values():
                logger.warning("Maintenance works again, which had failed: %s", over)
        except StoreError as error:
            if monotonic() - self._worked_at > self.lease / 2:
                # We could not reach the store for so long: perhaps no worker could, and none could renew its leases.
                self.spare_expired_leases(self.lease)
            if isinstance(error, StoreUnavailable):
                pause = self.retry_state.failed(error)
                self._pause_until = monotonic() + pause
            else:
                # What this task lacks, such as a permission, may last, and must not hold up the others.
                if str(error) not in self.refused.values():
                    logger.error("Maintenance failed and is tried again until it works: %s", error)
                pause, self.refused[number] = self._recover_every, str(error)
        except Exception:
            # An error in one maintenance task (such as an archive's database that is down) must not end the others.
            logger.exception("A maintenance task failed; it runs again in a minute")
            pause = 60.0
        if pause < inf:
            heapq.heappush(self._heap, (monotonic() + pause, number, task))

    def spare_expired_leases(self, seconds: float) -> None:
        """After an outage, recover no expired leases for that many seconds: workers need time to renew them."""
        self.grace_until = max(self.grace_until, monotonic() + seconds)

    def _look_for_lapsed(self) -> float:
        """Its own queues first: one of the others that the store refuses to this worker must not hold them up."""
        self._look_into(self._own)
        self._has_looked, self._looked_after = True, []
        others = sorted({*self._others()}.difference(self._own))
        self._look_into(others)
        self._looked_after = others
        return self._recover_every

    def _look_into(self, queues: Sequence[str]) -> None:
        """Ask for all queues at once, so that queues in which nobody works cost nothing more."""
        lapsed = self.store.lapsed(queues) if queues else []
        if monotonic() - self._worked_at > self.lease / 2:
            self.spare_expired_leases(self.lease)  # the call waited for the store, and workers could not renew either
        for queue in lapsed:
            self._once("recover", queue, partial(self._recover, queue, self._recover_every))
            self._once("expire", queue, partial(self._expire, queue))

    @property
    def has_recovered(self) -> bool:
        """Are the jobs of its own queues taken back whose leases were over at the start, as far as their workers are
        dead?"""
        if not self._has_looked or any(("recover", queue) in self._waiting for queue in self._own):
            return False
        return all(self.store.watches_for(queue) == inf for queue in self._own)

    def _look_for_upkeep(self) -> float:
        served = self.queues
        if not served:
            return RECONCILE
        due = self.store.upkeep_due(served)
        # A queue whose sizes have not changed since it was consistent is not checked again, except one in each look:
        # opposite faults leave the sizes equal.
        anyway = served[next(self._walk) % len(served)]
        self._changed, now = 0, monotonic()
        if self._limits != (limits := registry.limits(of_all=True)):
            self._limits = limits
            for queue in [queue for queue, each in due.items() if each.sizes is None]:  # no other has blocked jobs
                self._reached[queue] = b""
                self._once("let in", queue, partial(self._let_in, queue))
        for queue, (prune, sizes, _) in due.items():
            if sizes == "":
                continue
            changed = sizes is None or sizes != self._sound.get(queue)
            if now - self._pruned.get(queue, -inf) >= (PRUNE if prune or changed else PRUNE_ANYWAY):
                self._pruned[queue] = now
                self._once("prune", queue, partial(self._prune, queue))
            self._changed += changed
            walks = ("reconcile", queue) in self._waiting
            if (changed or queue == anyway) and not walks and now >= self._not_before.get(queue, -inf):
                self._unchecked[queue] = sizes
        if self._unchecked and not self._checks:
            self._checks = True
            self._add(self._check_next, self._next_check)
        if wanted := [queue for queue, each in due.items() if each.sample and each.sizes != ""]:
            self._once("sample", "", partial(self._sample, wanted))
        return RECONCILE

    def _sample(self, queues: list[str]) -> float:
        """Take samples of some queues, which are removed from the list."""
        some, queues[:] = queues[:SAMPLED], queues[SAMPLED:]
        try:
            self.store.sample(some)
        except StoreFull:
            return RECONCILE  # numbers for charts must not hold up what makes room
        return 0.0 if queues else RECONCILE

    def _check_next(self) -> float:
        """Check the next queue.  Returns the seconds until the one after it."""
        if self._unchecked:
            queue, sizes = next(iter(self._unchecked.items()))
            del self._unchecked[queue]
            began = monotonic()
            pause = self._check(queue, sizes)
            now = monotonic()
            self._next_check = now + min((now - began) / SHARE, RECONCILE)
            if pause <= SOON:
                self._once("reconcile", queue, partial(self._check, queue, sizes), now + pause)
        self._checks = bool(self._unchecked)
        return self._next_check - monotonic() if self._checks else inf

    def _check(self, queue: str, sizes: str | None) -> float:
        """Check the queue, unless another process does that.  Returns the seconds until the next step."""
        began, pause = monotonic(), RECONCILE
        every = min(max(RECONCILE, self._changed * self._took / SHARE), LONGEST_ROUND)
        wait = self.store.check_turn(queue, self._name, round((every + TURN) * 1000))
        if wait:
            self._not_before[queue] = began + wait / 1000
        else:
            pause = self._reconcile(queue)
            self._took = monotonic() - began
            self._not_before[queue] = began + every - RECONCILE
            if pause > SOON and sizes is not None:
                self._sound[queue] = sizes
        return pause

    def _recover(self, queue: str, every: float) -> float:
        silence = monotonic() - self._worked_at
        if silence > every / 2 and silence + LONGEST_CALL > self.lease / 2:
            # A call may wait until the store is back and be the first that it answers.  That must not be `recover`, as
            # leases may have ended during the wait.
            self.store.now()
            if monotonic() - self._worked_at > self.lease / 2:
                self.spare_expired_leases(self.lease)
        wait = self.grace_until - monotonic()
        if wait > 0:
            # Do not wait for all of it: so long a pause would look like an outage, and leases would be spared for ever.
            return min(wait, every)
        recovered = self.store.recover(queue, limit=_LIMIT, spare=self.lease * 1000)
        if ACTIVE and recovered:
            crashpoint("reap.mid_batch")
        announce_recovered(queue, recovered, self.deliver)
        if len(recovered) == _LIMIT:
            return 0.0
        wait = self.store.watches_for(queue)
        return min(wait, SOON) if wait < every else every

    def _expire(self, queue: str) -> float:
        late, more = self.store.expire(queue)
        if late:
            announce_expired(queue, late, self.store.now(), self.deliver)
        return 0.0 if more else self._recover_every

    def _prune(self, queue: str) -> float:
        return 0.0 if MAX_BATCH in self.store.prune(queue).values() else PRUNE

    def _let_in(self, queue: str) -> float:
        """Let in jobs that are blocked and may run by the limits of this process.  The process whose turn it is to
        check the queue may have older code, with other limits."""
        self._reached[queue] = self.store.let_in(queue, self._limits, self._reached[queue])
        return 0.0 if self._reached[queue] else RECONCILE

    def _reconcile(self, queue: str) -> float:
        buried: list[tuple[str, bytes]] = []
        found = self.store.reconcile(queue, buried=buried, limits=registry.limits(of_all=True))
        repairs = {kind: count for kind, count in found.items() if count}
        repairs.pop(EARLY_ADMISSION, None)
        indexed = sum(repairs.pop(kind, 0) for kind in INDEX)
        if indexed:
            logger.info(
                "Queue %r: %s corrected in the index of failed jobs", queue, counted(indexed, "entry", "entries")
            )
        if repairs:
            logger.warning("Queue %r was inconsistent and has been repaired: %s", queue, repairs)
            announce_misplaced(queue, buried, self.deliver)
            return SOON
        return SOON if indexed or self.store.is_walking(queue) else RECONCILE


def _tick(extra_task: ExtraTask) -> float:
    pause = extra_task.tick()
    return 60.0 if pause is None else max(pause, 0.0)
