"""Children that a job has frozen: the job runs C code that holds the GIL, so no other thread of its process runs.

Such a child keeps the jobs it has begun.  The jobs it has claimed and not begun are handed back, uncharged, and run
elsewhere.  When the GIL is free again, the child sees this in the shared memory and makes new claims.  A stopped
process (SIGSTOP, a debugger) looks the same to the parent, and is treated the same.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from time import monotonic

from django_jobs.core.values import Claim, Lane
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.formatting import counted
from django_jobs.stores.redis import Store
from django_jobs.worker.parent.children import ChildHandle, ChildProcesses
from django_jobs.worker.retry import RetryState
from django_jobs.worker.shared_memory import SETTLED, NotBegun

logger = logging.getLogger("django_jobs.worker")

#: Seconds between two checks of all children.
LOOK = 1.0
#: Seconds within which a child should begin its claimed jobs or hand them back (more than SLOW in
#: child/batch_monitor.py).
WAITS = 1.0
#: Seconds without an answer, and checks in that time: a parent that was held up may not have read the answer yet.
#: With LOOK and WAITS this keeps the promise "handed back within 10 s".  A child that computes in Python answers within
#: milliseconds, or within a second on a machine with twenty times as many processes as processors.
SILENT, LOOKS = 3.0, 3


@dataclass(slots=True)
class _Watch:
    """The state of one child that does not answer."""

    looks: int = 0
    looked_at: float = 0.0
    #: the jobs it has not begun, as last read, and since when they have read the same (monotonic); the claims that the
    #: store made for the claim call in progress.
    seen: NotBegun | None = None
    seen_at: float = 0.0
    came: list[Claim] = field(default_factory=list)
    #: the claims to hand back, one list per call; None until they are known.
    owed: deque[list[Claim]] | None = None
    handed_back: int = 0


class FrozenChildren:
    """Watches all children; each step makes at most one call to the store per frozen child."""

    def __init__(self, store: Store, child_processes: ChildProcesses) -> None:
        self.store, self.child_processes = store, child_processes
        self.due = 0.0
        self._watched: dict[int, _Watch] = {}
        self._retry_state = RetryState("Handing back the jobs that a frozen process has not started")

    def step(self, now: float) -> None:
        """Check the children if it is time."""
        if now < self.due:
            return
        self.due = now + LOOK
        self._watched = {pid: watch for pid, watch in self._watched.items() if pid in self.child_processes.children}
        for child in self.child_processes:
            if child.channel.is_open and not child.killed_for:
                self._look(child, now)

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
                "Jobs that it has claimed and not started are handed back.",
                child.name,
                now - child.pinged_at,
            )

    def _take_back(self, child: ChildHandle, watch: _Watch) -> None:
        """Make one step towards handing back the jobs that the child has not begun."""
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
            logger.error("The jobs that %s has not started cannot be handed back: %s", child.name, error)
            watch.owed = watch.owed or deque()
            if watch.owed:
                watch.owed.popleft()
        if watch.owed is None or watch.owed:
            self.due = min(self.due, monotonic() + SETTLED)

    def _find(self, child: ChildHandle, watch: _Watch) -> None:
        """Find the claims to hand back: an entry that the shared memory shows twice, SETTLED seconds apart, is true.

        Between the two reads, ask the store what it gave to a claim call whose answer the child cannot read.  If the
        child shows the same call in the second read, it has made no later one."""
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
            number = counted(watch.handed_back, "job")
            logger.warning("Handed back: %s that %s had not started", number, child.name)


def _level(child: ChildHandle) -> int:
    """Return the log level: a frozen child of the alone lane makes no other job wait."""
    return logging.WARNING if child.lane is Lane.SHARED else logging.DEBUG
