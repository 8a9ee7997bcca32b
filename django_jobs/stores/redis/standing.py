"""RedisStore: where one job stands among others, by plain reads."""

from __future__ import annotations

from django_jobs.core.standing import Standing
from django_jobs.core.values import State
from django_jobs.exceptions import StoreError
from django_jobs.stores.contract.browsing import MOST_HOLDERS, BrowsingStore
from django_jobs.stores.contract.queues import QueueStore
from django_jobs.stores.redis.base import RedisPart
from django_jobs.stores.redis.entries import read_claim, read_number

#: As in lua/lib/score.lua: the range of scores of one priority, and what is subtracted from those of suspects.
STEP = 2**45
SUSPECT = 256 * STEP
#: First character of a key in `blocked` that is not the key of a limit (docs/internals.md).
KINDS = {b"\2": "pause", b"\3": "stop", b"\4": "unknown"}


class RedisStanding(RedisPart, BrowsingStore, QueueStore):
    """See stores/contract/browsing.py and queues.py for the contract of each method."""

    def standing(self, queue: str, id: str, limit_key: str | None = None) -> Standing:
        names = self.keys.of(queue)
        claim, member, shared, alone, running, stop, taken = self.transport.pipeline(
            [
                ("HGET", names["claims"], id),
                ("HGET", names["waits"], id),
                ("ZSCORE", names["queued"], id),
                ("ZSCORE", names["alone"], id),
                ("HLEN", names["claims"]),
                ("HGET", names["stops"], id),
                ("ZRANGEBYLEX", names["slots"], *_range(limit_key or ""), "LIMIT", 0, MOST_HOLDERS),
            ]
        )
        found = Standing(running=int(running))
        if limit_key is not None:
            held = self.transport.command("ZLEXCOUNT", names["slots"], *_range(limit_key))
            found = found._replace(held=int(held), holders=tuple(_id_in(each) for each in taken))
        if claim is not None:
            ends = self.transport.command("ZSCORE", names["leases"], read_claim(claim)[2])
            return found._replace(state=State.RUNNING, lease_ends=read_number(ends or 0))
        if member is not None:
            kind = KINDS.get(member[:1], "limit")
            return found._replace(state=State.BLOCKED, blocked_by=kind, stopping=_holder_in(stop))
        if shared is not None or alone is not None:
            place, score = ("queued", shared) if shared is not None else ("alone", alone)
            return self._in_lane(found, id, names[place], place, float(score))
        return found

    def _in_lane(self, found: Standing, id: str, key: str, place: str, score: float) -> Standing:
        suspect = score < 0 and place == "alone"
        base = -SUSPECT if suspect else 0
        first = base + int((score - base) // STEP) * STEP  # the first score of its priority
        lowest = "-inf" if suspect or place == "queued" else 0  # the others of this lane do not wait for suspects
        # Not the score alone: jobs that came back together have the same one, and are claimed in order of their ids.
        rank, others, higher = self.transport.pipeline(
            [("ZRANK", key, id), ("ZCOUNT", key, "-inf", f"({lowest}"), ("ZCOUNT", key, lowest, f"({first:.0f}")]
        )
        ahead = 0 if rank is None else int(rank) - int(others)
        lane = "suspect" if suspect else "shared" if place == "queued" else "alone"
        return found._replace(state=State.QUEUED, lane=lane, ahead=max(0, ahead), higher=int(higher))

    def refusal(self, queue: str) -> str:
        try:
            said: bytes = self._run("refusal", queue)
        except StoreError:  # this user may not run it, or the server is away: both show elsewhere
            return ""
        return said.decode(errors="replace")


def _range(limit_key: str) -> tuple[bytes, bytes]:
    key = limit_key.encode()
    return b"[" + key + b"\0", b"(" + key + b"\1"


def _id_in(slot: bytes) -> str:
    return slot.rpartition(b"\0")[2].decode(errors="replace")


def _holder_in(stop: bytes | None) -> str:
    """Return the holder in a value of `stops`: ms:holder NUL token NUL limit key."""
    return (stop or b"").partition(b":")[2].partition(b"\0")[0].decode(errors="replace")
