"""Which leases have ended, although a server's clock may be set forward: then the leases of living workers look as if
they had ended.

A process that looks at the server's clock every few seconds compares it with its own monotonic clock.  If both went on
evenly, a lease whose end this process has seen come is over.  For other leases, that were over at the first look of the
process or when the clock had been set forward, it waits: a worker that lives renews its leases by the new time within a
sixth of their length."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic

#: ms: a smaller step ends no lease before the next heartbeat.
TOLERANCE = 1_000
#: The part of a lease in which a worker that lives renews it: a heartbeat, and a little more.
RENEWED_WITHIN = 0.2


class ClockSteps:
    """What one process knows of the clocks of its servers, and of leases that may be over."""

    def __init__(self) -> None:
        #: server → how far its clock was ahead of ours at most (ms), at the last look.
        self._ahead: dict[str, float] = {}
        #: server → the time by its clock since which both have gone on evenly (ms), and whether a step was found.
        self._even: dict[str, tuple[int, bool]] = {}
        #: queue → holder → the end of its lease (ms), and since when it is watched (monotonic, s).
        self._watched: dict[str, dict[str, tuple[int, float]]] = {}
        #: queue → when it should be looked at again, if a lease is watched there (monotonic, s).
        self._until: dict[str, float] = {}

    def look(self, server: str, now: int, asked_at: float) -> None:
        """The server's clock said `now` (ms) in answer to a call that began at `asked_at` (monotonic, s)."""
        answered_at = monotonic()
        even_since, stepped = self._even.get(server, (now, False))
        if now - answered_at * 1000 > self._ahead.get(server, inf) + TOLERANCE:
            even_since, stepped = now, True
        self._even[server] = min(even_since, now), stepped  # after a step back, new leases end before
        self._ahead[server] = now - asked_at * 1000

    def ended(self, server: str, queue: str, leases: Mapping[str, int], spare: float, at_first: float) -> list[str]:
        """Return the holders whose leases are over.  `leases`: holder → end (ms), of those that seem to be.  For how
        long (ms) a lease is watched that was over before the clocks went on evenly: `spare` if a step was found;
        `at_first` if this process has just begun, and knows of no step."""
        now, (even_since, stepped) = monotonic(), self._even[server]
        watch = spare if stepped else at_first
        before = self._watched.get(queue, {})
        watched: dict[str, tuple[int, float]] = {}
        for holder, end in leases.items():
            since = before[holder][1] if before.get(holder, (None,))[0] == end else now
            if end <= even_since and (now - since) * 1000 < watch:
                watched[holder] = end, since
        self._watched[queue] = watched
        self._until[queue] = min((since for _, since in watched.values()), default=inf) + watch / 1000
        return [holder for holder in leases if holder not in watched]

    def watches_for(self, queue: str) -> float:
        """Return the seconds until the queue should be looked at again; inf = at any time: no lease is watched."""
        left = self._until.get(queue, inf) - monotonic()
        return left if left > 0 else inf
