"""What to claim next.  From which queue, among those that may have jobs: at random by weight, or strictly by priority.
How many: as many jobs as take about 20 ms, estimated from earlier jobs.

No I/O, no clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from math import inf

from django_jobs.conf import QueueSettings
from django_jobs.stores.values.answers import Outlook

#: Seconds for which a queue rests if it has jobs but gave none (it is paused, or at its limit).  The time doubles from
#: the shortest to the longest.
SHORTEST_REST = 0.05
LONGEST_REST = 1.0
#: Seconds for which a batch should occupy its thread: jobs share round trips, and none waits long behind another.
TARGET_SECONDS = 0.020
#: Most jobs in a batch.  Redis takes 2 ms to end them, as long as to add the 1,000 jobs of one call of enqueue_many;
#: meanwhile, other clients wait.  With 250, the server spent half as much again on each job, and a quarter fewer ran.
LARGEST = 700
#: Seconds assumed for a job of a queue whose jobs have not run yet: 8 of them fill the target.
_UNKNOWN = TARGET_SECONDS / 8


class _Known:
    """The assumptions about one queue.  Times are seconds of the caller's monotonic clock."""

    __slots__ = ("due", "left", "name", "rest", "rests_until", "weight")

    def __init__(self, settings: QueueSettings) -> None:
        self.name, self.weight = settings.name, settings.priority
        self.left = 0
        self.due = inf
        self.rest = 0.0
        self.rests_until = -inf


class QueuePicker:
    """Remembers what claims and the store said of each queue, and picks the next one."""

    def __init__(
        self, queues: Iterable[QueueSettings], *, strict: bool = False, rng: Callable[[], float] = random.random
    ) -> None:
        self._known = {settings.name: _Known(settings) for settings in queues}
        self._strict, self._rng = strict, rng

    def add(self, queues: Iterable[QueueSettings]) -> None:
        """There are more queues.  Other threads may be reading."""
        self._known = self._known | {settings.name: _Known(settings) for settings in queues}

    def pick(self, now: float) -> str | None:
        """Return a queue that may have jobs to claim, or None.  An empty queue is never picked."""
        ready = [
            known for known in self._known.values() if known.rests_until <= now and (known.left > 0 or known.due <= now)
        ]
        if not ready:
            return None
        if self._strict:
            highest = max(known.weight for known in ready)
            ready = [known for known in ready if known.weight == highest]
        if len(ready) == 1:
            return ready[0].name
        point = self._rng() * (len(ready) if self._strict else sum(known.weight for known in ready))
        for known in ready:
            point -= 1 if self._strict else known.weight
            if point < 0:
                return known.name
        return ready[-1].name

    def claimed(self, queue: str, *, got: int, left: int, next_due: int | None, now: float) -> None:
        """Learn from a claim: how many jobs it got, how many are left, ms until the next is due (None: none is)."""
        known = self._known[queue]
        # If fewer are left than before, the claim has set aside jobs that may not run, and the next may reach others.
        stuck = got == 0 and left >= max(known.left, 1)
        known.left = left
        known.due = inf if next_due is None else now + next_due / 1000
        if stuck:
            known.rest = min(max(known.rest * 2, SHORTEST_REST), LONGEST_REST)
            known.rests_until = now + known.rest
        else:
            known.rest, known.rests_until = 0.0, -inf

    def set_backlog(self, backlog: Mapping[str, int]) -> None:
        """Learn how many jobs wait in each queue."""
        for name, left in backlog.items():
            self._known[name].left = left

    def set_outlook(self, outlook: Mapping[str, Outlook], now: float) -> None:
        """Learn where a claim may find jobs, now or later.  This replaces earlier assumptions."""
        for name, (left, due) in outlook.items():
            known = self._known[name]
            known.left, known.due = left, inf if due is None else now + due / 1000

    def suspect(self, queue: str | None = None) -> None:
        """Assume that this queue (None: every queue) may have jobs: one may have become due or unblocked."""
        for name in self._known if queue is None else (queue,):
            known = self._known[name]
            known.due = known.rests_until = -inf

    def made_room(self, queue: str) -> None:
        """Jobs of this queue have ended: end its rest, as it may be below its limit now.  Any thread may call this."""
        self._known[queue].rests_until = -inf

    def hand_over(self, before: float, *, keep: str | None = None) -> list[str]:
        """Return the queues, except `keep`, that may have jobs due before that time, and forget those due times."""
        names = [name for name, known in self._known.items() if known.due < before and name != keep]
        for name in names:
            self._known[name].due = inf
        return names

    def pause(self, now: float, longest: float) -> float:
        """Return the seconds until a known due time or the end of a rest, at most `longest`."""
        soonest = longest
        for known in self._known.values():
            at = known.rests_until if known.left > 0 else max(known.due, known.rests_until)
            soonest = min(soonest, at - now)
        return max(soonest, 0.0)


class BatchSizer:
    """Keeps, per queue, a decaying average of how long a job occupies a thread."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def size(self, queue: str) -> int:
        """Return how many jobs of this queue to claim now, 1…LARGEST."""
        average = self._average.get(queue, _UNKNOWN)
        return LARGEST if average * LARGEST <= TARGET_SECONDS else max(1, int(TARGET_SECONDS / average))

    def observe(self, queue: str, seconds: float, jobs: int) -> None:
        """Learn that `jobs` jobs took `seconds` together.  A batch of twenty replaces most of the old average."""
        if jobs > 0:
            average = self._average.get(queue, _UNKNOWN)
            self._average[queue] = average + (seconds / jobs - average) * (1 - 0.9**jobs)
