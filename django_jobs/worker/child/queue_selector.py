"""Which queue to look into next: at random by weight, or strictly by rank, among those believed to have work.  Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from math import inf

from django_jobs.conf import QueueSettings
from django_jobs.stores.contract.running import Outlook

#: Seconds a queue is left alone that has jobs but gave none (it is paused, or at its limit): doubling between these.
SHORTEST_REST = 0.05
LONGEST_REST = 1.0


class _Known:
    """What is believed of one queue.  Times are seconds of the caller's monotonic clock."""

    __slots__ = ("due", "left", "name", "rest", "rests_until", "weight")

    def __init__(self, settings: QueueSettings) -> None:
        self.name, self.weight = settings.name, settings.priority
        self.left = 0
        self.due = inf
        self.rest = 0.0
        self.rests_until = -inf


class QueuePicker:
    """Remembers what claims and the store said of each queue, and picks."""

    def __init__(
        self, queues: Iterable[QueueSettings], *, strict: bool = False, rng: Callable[[], float] = random.random
    ) -> None:
        self._known = {settings.name: _Known(settings) for settings in queues}
        self._strict, self._rng = strict, rng

    def pick(self, now: float) -> str | None:
        """A queue worth a claim, or None.  An empty queue is never considered."""
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
        """Learn from a claim: how many came, how many stay, ms until the next is due (None: there is none)."""
        known = self._known[queue]
        # Fewer than before: the claim has put away jobs that may not run, and the next one may get behind them.
        stuck = got == 0 and left >= max(known.left, 1)
        known.left = left
        known.due = inf if next_due is None else now + next_due / 1000
        if stuck:
            known.rest = min(max(known.rest * 2, SHORTEST_REST), LONGEST_REST)
            known.rests_until = now + known.rest
        else:
            known.rest, known.rests_until = 0.0, -inf

    def learn(self, backlog: Mapping[str, int]) -> None:
        """Learn how many jobs wait in each queue."""
        for name, left in backlog.items():
            self._known[name].left = left

    def foresee(self, outlook: Mapping[str, Outlook], now: float) -> None:
        """Learn where a claim may find something, now or later.  What was suspected before is known by this."""
        for name, (left, due) in outlook.items():
            known = self._known[name]
            known.left, known.due = left, inf if due is None else now + due / 1000

    def suspect(self, queue: str | None = None) -> None:
        """Something may have become due, or a running job may have made room: look into this queue, or into all."""
        for name in self._known if queue is None else (queue,):
            known = self._known[name]
            known.due = known.rests_until = -inf

    def made_room(self, queue: str) -> None:
        """Jobs of this queue have ended here: if it rests because of its limit, it need not.  From any thread."""
        self._known[queue].rests_until = -inf

    def hand_over(self, before: float, *, keep: str | None = None) -> list[str]:
        """The queues (but for `keep`) to be looked into before that time, of which nobody here thinks any more."""
        names = [name for name, known in self._known.items() if known.due < before and name != keep]
        for name in names:
            self._known[name].due = inf
        return names

    def pause(self, now: float, longest: float) -> float:
        """Seconds until a known due time or the end of a rest, at most `longest`."""
        soonest = longest
        for known in self._known.values():
            at = known.rests_until if known.left > 0 else max(known.due, known.rests_until)
            soonest = min(soonest, at - now)
        return max(soonest, 0.0)
