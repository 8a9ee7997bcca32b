"""Children that a job has frozen: it runs C code that holds the GIL, so no other thread of its process runs.

What such a child has begun stays with it.  What it has claimed and not begun is handed back, uncharged, and runs
elsewhere; when the job lets go, the child finds that in the shared memory and goes on with new claims.  A process that
is stopped (SIGSTOP, a debugger) looks the same from here, and is treated so.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from time import monotonic

from django_jobs.core.values import Claim, Lane
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.contract.store import Store
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses
from django_jobs.worker.retry import RetryState
from django_jobs.worker.shared_memory import SETTLED, NotBegun

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two looks at all children.
LOOK = 1.0
#: Seconds after which a child should have begun or given back what it claimed (child/batch_monitor.py: SLOW and more).
WAITS = 1.0
#: Seconds without an answer, and looks in that time: a parent that was held up has not seen the answer yet.  With
#: LOOK and WAITS this keeps "handed back within 10 s"; a child that computes in Python answers in milliseconds, on a
#: machine with twenty times as many processes as processors within a second.
SILENT, LOOKS = 3.0, 3
#: Seconds without an answer of a child that has locked the store all the time.  The parent may have waited 4.5 s for
#: the lock itself before it looks, and 20 s are promised for all.
LOCKS = 2.0


@dataclass(slots=True)
class _Watch:
    """What the parent is about with one child that does not answer."""

    looks: int = 0
    looked_at: float = 0.0
    #: what it had not begun, as seen last, and since when it has looked so (monotonic); what the store has of the claim
    #: call that is under way.
    seen: NotBegun | None = None
    seen_at: float = 0.0
    came: list[Claim] = field(default_factory=list)
    #: what is to be handed back, one call each; None until that is known.
    owed: deque[list[Claim]] | None = None
    handed_back: int = 0


class FrozenChildren:
    """Watches over all children; each step makes one call to the store at the most."""

    def __init__(self, store: Store, child_processes: ChildProcesses) -> None:
        self.store, self.child_processes = store, child_processes
        self.due = 0.0
        self._watched: dict[int, _Watch] = {}
        #: the child that held the lock of a store in a file at the last look, and since when at every look (monotonic).
        self._locked_by = (0, 0.0)
        self._is_locked = False
        #: when to look at the lock again (monotonic).
        self.lock_due = 0.0
        self._retry_state = RetryState("Handing back what a frozen process has not begun")

    def step(self, now: float) -> None:
        """Look at the children if it is time."""
        if now < self.due:
            return
        self.due = now + LOOK
        self._watched = {pid: watch for pid, watch in self._watched.items() if pid in self.child_processes.children}
        for child in self.child_processes:
            if child.channel.is_open and not child.killed_for:
                self._look(child, now)

    def store_is_locked(self, now: float) -> bool:
        """A store in a file has one lock.  A child that was frozen while another thread of it wrote holds up everybody,
        its own job too, which could not end: this process is ended.  What it held runs again, uncharged.

        True while that may be so: a call to the store would only wait."""
        if now < self.lock_due:
            return self._is_locked
        self.lock_due = now + LOOK / 2
        pid = self.store.locked_by()
        child = self.child_processes.children.get(pid)
        if child is None or child.killed_for:
            pid = 0
        if pid != self._locked_by[0]:
            self._locked_by = (pid, now)
        self._is_locked = child is not None and pid != 0 and now > self._locked_by[1]
        if child is not None and self._is_locked:
            if child.pinged_at is None:
                child.ping(self.child_processes.serial)
            elif now - max(child.pinged_at, self._locked_by[1]) >= LOCKS:
                logger.error("%s does not answer, and holds the lock of the store: it is ended", child.name)
                child.kill("fenced")
        return self._is_locked

    def _look(self, child: ChildHandle, now: float) -> None:
        if child.pinged_at is None:
            if self._watched.pop(child.pid, None) is not None and child.is_frozen:
                child.is_frozen = False
                logger.log(_level(child), "%s answers again", child.name)
            waits = child.shared.waits_since()
            if waits is not None and now - waits > WAITS:
                child.ping(self.child_processes.serial)
            return
        watch = self._watched.setdefault(child.pid, _Watch())
        if child.is_frozen:
            self._take_back(child, watch)
            return
        if now - watch.looked_at > LOOK / 2:
            watch.looks, watch.looked_at = watch.looks + 1, now
        if watch.looks >= LOOKS and now - child.pinged_at >= SILENT:
            child.is_frozen = True
            child.shared.revoke()
            self.due = now + SETTLED
            logger.log(
                _level(child),
                "%s has not answered for %.0f s: a job there seems to run C code that lets no other thread run. "
                "What it has claimed and not begun is handed back.",
                child.name,
                now - child.pinged_at,
            )

    def _take_back(self, child: ChildHandle, watch: _Watch) -> None:
        """One step of it."""
        try:
            if watch.owed is None:
                self._find(child, watch)
            elif watch.owed:
                self._hand_back(child, watch, watch.owed[0])
                watch.owed.popleft()
            self._retry_state.worked()
        except StoreUnavailable as error:
            watch.seen = None
            self.due = monotonic() + max(self._retry_state.failed(error), SETTLED)
            return
        except StoreError as error:
            logger.error("What %s has not begun cannot be handed back: %s", child.name, error)
            watch.owed = watch.owed or deque()
            if watch.owed:
                watch.owed.popleft()
        if watch.owed is None or watch.owed:
            self.due = min(self.due, monotonic() + SETTLED)

    def _find(self, child: ChildHandle, watch: _Watch) -> None:
        """What the child shows twice is so.  Between the two looks the store is asked for what it gave in answer to a
        claim call that the child cannot take in: no later call can have been made when the child still shows that one.
        """
        seen = child.shared.not_begun()
        if seen != watch.seen:
            watch.seen, watch.seen_at, watch.came = seen, monotonic(), []
            if seen.asked is not None:
                newest = seen.asked.newest
                watch.came = [c for c in self.store.holdings(seen.asked.queue, child.name) if c.token > newest]
            return
        if monotonic() - watch.seen_at < SETTLED:
            return
        known = {(claim.queue, claim.id, claim.token) for claim in seen.claims}
        calls: dict[tuple[str, int], list[Claim]] = {}
        for claim in (*seen.claims, *(c for c in watch.came if (c.queue, c.id, c.token) not in known)):
            calls.setdefault((claim.queue, claim.token), []).append(claim)
        watch.owed = deque(calls.values())

    def _hand_back(self, child: ChildHandle, watch: _Watch, claims: list[Claim]) -> None:
        stale = self.store.release(claims[0].queue, claims)
        watch.handed_back += len(claims) - len(stale)
        if watch.owed is not None and len(watch.owed) == 1:
            logger.warning("%d jobs that %s had not begun were handed back", watch.handed_back, child.name)


def _level(child: ChildHandle) -> int:
    """A child for one job at a time keeps nobody waiting."""
    return logging.WARNING if child.lane is Lane.SHARED else logging.DEBUG
