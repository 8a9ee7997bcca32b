"""Queues in which no child of this worker can hold a job.  Their leases need no renewal, so a worker costs the same
with three idle queues and with a thousand.

A queue is idle if no child has claimed from it, or if the store said that nothing is held there and no child has
claimed from it since, for the length of a lease.  That time is needed because a server that fails may forget its last
seconds: then claims that had ended are there again, and only a renewal tells the children, who end them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from django_jobs.worker.shared_memory import SharedMemory

#: For each child that has claimed from the queue: its name, and the number of its last claim call there.
Calls = tuple[tuple[str, int], ...]


class LivingChild(Protocol):
    """A child, as its parent knows it."""

    name: str
    shared: SharedMemory


class _Empty(NamedTuple):
    calls: Calls
    #: monotonic.
    since: float


class IdleQueues:
    """Told of each renewal."""

    def __init__(self, children: Iterable[LivingChild], lease: float) -> None:
        """`lease` in seconds."""
        self._children, self._lease = children, lease
        self._empty: dict[str, _Empty] = {}

    def calls(self, queue: str) -> Calls | None:
        """Return which claim calls there were so far; None while one may still bring jobs."""
        made = []
        for child in self._children:
            number = child.shared.last_call(queue)
            if number is None:
                return None
            if number:
                made.append((child.name, number))
        return tuple(made)

    def is_idle(self, queue: str, now: float) -> bool:
        """Can no child hold a job there?"""
        calls, empty = self.calls(queue), self._empty.get(queue)
        if not calls:
            return calls is not None  # no child has ever claimed from it
        return empty is not None and now - empty.since >= self._lease and calls == empty.calls

    def renewed(self, queue: str, before: Calls | None, *, holds: bool, now: float) -> None:
        """The queue was renewed at `now`; `before`: its calls before that; `holds`: a child holds a job there."""
        if holds or before is None:
            self._empty.pop(queue, None)
        elif queue not in self._empty or self._empty[queue].calls != before:
            self._empty[queue] = _Empty(before, now)

    def doubt(self) -> None:
        """The store did not answer: it may have forgotten something.  Renew in all queues, for a lease."""
        self._empty.clear()
