"""Since when the oldest job can run, by plain reads: lua/lib/oldest.lua for users who may not run scripts."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

from django_jobs.serialization.record import enqueued_ms
from django_jobs.stores.redis.connection.cluster import AnyTransport
from django_jobs.stores.redis.connection.replies import Argument
from django_jobs.stores.redis.entries import read_number

#: Distance of two priorities (lua/lib/score.lua).
STEP = 2**45
#: Jobs of one priority that are read at a time, and of one lane in all.
LOOKED_AT, MOST = 20, 1000


class Oldest:
    """One query of one queue: a few round trips for each priority that has jobs."""

    def __init__(self, transport: AnyTransport, names: dict[str, str], now: int) -> None:
        self.transport, self.names, self.now = transport, names, now

    def since(self) -> int:
        """Return the time in ms; 0 = no job could run."""
        found = [due for zset in ("scheduled", "retry") if (due := self._due(zset)) and due <= self.now]
        noted = self._command("ZRANGEBYSCORE", "since", 1, "+inf", "WITHSCORES", "LIMIT", 0, LOOKED_AT)
        for i in range(0, len(noted), 2):
            if any(self._command("ZSCORE", lane, noted[i]) is not None for lane in ("queued", "alone")):
                found.append(read_number(noted[i + 1]))
                break
        found += [at for lane in ("queued", "alone") for at in self._in(lane)]
        return min(found, default=0)

    def _due(self, zset: str) -> int:
        head = self._command("ZRANGE", zset, 0, 0, "WITHSCORES")
        return read_number(head[1]) if head else 0

    def _in(self, lane: str) -> Sequence[int]:
        """Return, for each priority, the time in the record of the first job that has no entry in `since`."""
        found, start, left = list[int](), "-inf", MOST
        while left > 0:
            head = self._command("ZRANGEBYSCORE", lane, start, "+inf", "WITHSCORES", "LIMIT", 0, 1)
            if not head or abs(float(head[1])) == float("inf"):
                break
            place = floor(float(head[1]) / STEP)
            left -= 1
            offset = 0
            while left > 0:
                bounds = place * STEP + STEP // 2, f"({(place + 1) * STEP}"
                ids = self._command("ZRANGEBYSCORE", lane, *bounds, "LIMIT", offset, LOOKED_AT)
                known = self._command("ZMSCORE", "since", *ids) if ids else []
                first = next((id for id, at in zip(ids, known, strict=True) if at is None), None)
                offset, left = offset + len(ids), left - len(ids)
                if first is not None:
                    at = enqueued_ms(self._command("HGET", "jobs", first) or b"", 0)
                    found += [at] if at else []
                if first is not None or not ids:
                    break
            if (place + 1) * STEP <= float(head[1]):
                break
            start = str((place + 1) * STEP)
        return found

    def _command(self, verb: str, key: str, *args: Argument) -> Any:
        return self.transport.command(verb, self.names[key], *args)
