"""SqliteStore: how workers on one machine wait for work without querying all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from django_jobs.core.values import Lane
from django_jobs.stores.contract.fetching import FetchingStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.claiming import lane_parts, outlook_of
from django_jobs.stores.sqlite.database.unknown import is_parked

#: a test's clock moves without any notice: check it this often (seconds).
_CLOCK_POLL = 0.02


class _View(NamedTuple):
    """What a waiting worker sees of its queues."""

    #: grows with each job that is added, moved or deleted.
    changes: int
    #: whether a queue that is not paused has a job in that lane.
    ready: bool
    #: seconds until the next scheduled or retry job, or until a pause ends.
    due: float | None
    #: the queue to look into, if only parked jobs are ready.
    parked_in: str


class SqliteWaiting(SqlitePart, FetchingStore):
    """See stores/contract/fetching.py.

    Each thread remembers what it saw when it was last woken, and is woken again only after a change: a queue whose
    jobs may not run now (its limit is reached) wakes no worker."""

    _seen: threading.local

    def wait_for_work(
        self,
        queues: Sequence[str],
        timeout: float,
        *,
        lane: Lane | None = Lane.SHARED,
        passed_over: Collection[str] = (),
    ) -> str | None:
        deadline = time.monotonic() + timeout
        seen = self._seen.__dict__
        key = f"{lane}:{','.join(queues)}"
        while True:
            mark = self.database.mark()
            view = self._look(queues, lane, passed_over)
            if (view.ready and seen.get(key) != view.changes) or view.due == 0:
                seen[key] = view.changes
                return view.parked_in
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if view.due is not None:
                left = min(left, _CLOCK_POLL if self.options.clock is not None else view.due)
            self.database.wait(mark, left)

    def wake(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> None:
        """Do nothing: each waiting worker sees changes by itself."""

    def _look(self, queues: Sequence[str], lane: Lane | None, passed_over: Collection[str]) -> _View:
        changes, ready, due, parked_in = 0, False, None, ""
        with self.database.read() as connection:
            for queue in queues:
                view = self.reading(queue, connection)
                changes += view.value("SELECT sum(changes) FROM counts WHERE queue = ?", queue) or 0
                for each in (Lane.SHARED, Lane.ALONE) if lane is None else (lane,):
                    left, ms = outlook_of(view, each)
                    if left > 0:
                        parked_in = ""
                    ready = ready or left > 0
                    if queue not in passed_over and not ready:
                        ready = "" not in view.pauses() and is_parked(view, lane_parts(each))
                        parked_in = queue if ready else ""
                    if ms is not None:
                        due = ms / 1000 if due is None else min(due, ms / 1000)
        return _View(changes, ready, due, parked_in)
