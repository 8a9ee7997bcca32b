"""`--burst` and `--drain`: finds out when no job is left to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from django_jobs.conf import QueueSettings
from django_jobs.remote import pull_queues
from django_jobs.stores.redis import Store
from django_jobs.worker.parent.children import ChildProcesses

#: Seconds between two checks.
INTERVAL = 0.05


class Burst:
    """Checks the children, then the store, then the children again.

    If a child had held a job while the store was empty, it would be busy in one of its two answers, or would have
    claimed in between.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[str],
        child_processes: ChildProcesses,
        finds_more: Callable[[], bool],
        *,
        up_to: Mapping[str, int] | None = None,
    ) -> None:
        """`finds_more()` looks for new queues.  `up_to`: queue → the number of the last job to run; None = all jobs
        are run."""
        self.store, self.queues, self.child_processes, self.up_to = store, queues, child_processes, up_to
        self.finds_more, self._serial = finds_more, 0
        self._asked: set[str] = set()
        self._claimed: int | None = None
        self.due = 0.0

    def step(self, now: float) -> bool:
        """Check once.  Returns True when everything is done.  Raises StoreError."""
        if now < self.due:
            return False
        self.due = now + INTERVAL
        children = list(self.child_processes)
        if {child.name for child in children} != self._asked:
            self._ask()
            self._claimed = None
            return False
        statuses = [child.status for child in children]
        if any(status.serial < self._serial for status in statuses):
            return False
        if not all(status.idle for status in statuses):
            self._claimed = None
            self._ask()
            return False
        claimed = sum(status.claimed for status in statuses)
        if self._claimed == claimed:
            return True
        self._claimed = claimed if not self.finds_more() and self._store_is_empty() else None
        self._ask()
        return False

    def _ask(self) -> None:
        self._asked = {child.name for child in self.child_processes}
        self.child_processes.ping()
        self._serial = self.child_processes.serial

    def _store_is_empty(self) -> bool:
        """Does no job wait that could run now?  Jobs in paused queues, or due later, do not count."""
        others = pull_queues()
        queues = [queue for queue in self.queues if queue not in others]
        if self.up_to is not None:
            return not any(self.store.waiting(queue, self.up_to[queue]) for queue in queues)
        for queue in queues:
            if self.store.promote(queue):
                return False
        return not any(stats.paused is None and stats.counts.get("queued", 0) for stats in self.store.stats(queues))


def waiting_now(store: Store, queues: Sequence[QueueSettings]) -> dict[str, int]:
    """Return what `--drain` has to run: queue → the number of its last waiting job, for each queue in which jobs wait.

    Blocked jobs count as waiting, because the end of a running job may unblock them.  Paused queues are left out.
    Raises StoreError."""
    marks: dict[str, int] = {}
    for queue in queues:
        mark = store.last_arrival(queue.name)
        (stats,) = store.stats([queue.name])
        if stats.paused is None and (stats.counts.get("queued", 0) or stats.counts.get("blocked", 0)):
            marks[queue.name] = mark
    return marks
