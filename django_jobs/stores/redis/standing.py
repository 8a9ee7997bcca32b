"""Where one job stands among others, and since when the oldest can run, by plain reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import floor, isfinite
from typing import Any

from django_jobs.core.standing import Standing
from django_jobs.core.values import FINISHED, State
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.serialization.checked import read_number
from django_jobs.serialization.record import decode, enqueued_ms
from django_jobs.stores.redis.connection.cluster import AnyTransport
from django_jobs.stores.redis.connection.entries import read_claim
from django_jobs.stores.redis.connection.part import Part
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.values.answers import MOST_HOLDERS, Move, RememberedId

#: As in lua/lib/lanes/score.lua: the range of scores of one priority, and what is subtracted from those of suspects.
STEP = 2**45
SUSPECT = 256 * STEP
#: Jobs of one priority that `Oldest` reads at a time, and of one lane in all.
LOOKED_AT, MOST = 20, 1000
#: First character of a key in `blocked` that is not the key of a limit (docs/contributing/internals.md).
KINDS = {b"\2": "pause", b"\3": "stop", b"\4": "unknown"}


class Positions(Part):
    """Where one job stands, what is remembered of it, and why the server refuses changes."""

    def standing(self, queue: str, id: str, limit_key: str | None = None) -> Standing:
        """Return where the job stands among others; `limit_key`: that of its controls.  A queue may change between
        two of the reads, so a caller compares `state` with JobInfo.  At most MOST_AHEAD jobs need be counted."""
        names = self.keys.of(queue)
        claim, member, shared, alone, running, stop, stops, taken = self.transport.pipeline(
            [
                ("HGET", names["claims"], id),
                ("HGET", names["waits"], id),
                ("ZSCORE", names["queued"], id),
                ("ZSCORE", names["alone"], id),
                ("HLEN", names["claims"]),
                ("HGET", names["stops"], id),
                ("HVALS", names["stops"]),
                ("ZRANGEBYLEX", names["slots"], *_range(limit_key or ""), "LIMIT", 0, MOST_HOLDERS),
            ]
        )
        killed_by = _holder_in(stop) if _is_killed(stop) else ""
        found = Standing(running=int(running) + sum(map(_is_killed, stops)), stopping=killed_by)
        if limit_key is not None:
            held, behind = self.transport.pipeline(
                [("ZLEXCOUNT", names[key], *_range(limit_key)) for key in ("slots", "blocked")]
            )
            holders = tuple(_id_in(each) for each in taken)
            found = found._replace(held=int(held), holders=holders, behind=int(behind))
        if claim is not None:
            ends = self.transport.command("ZSCORE", names["leases"], read_claim(claim)[2])
            return found._replace(state=State.RUNNING, lease_ends=read_number(ends or 0))
        if member is not None:
            kind = KINDS.get(member[:1], "limit")
            return found._replace(state=State.BLOCKED, blocked_by=kind)
        if shared is not None or alone is not None:
            place, score = ("queued", shared) if shared is not None else ("alone", alone)
            return self._in_lane(found, id, names[place], place, float(score))
        return found

    def key_holders(self, queue: str, records: Mapping[str, bytes]) -> dict[str, str]:
        """Return which other job holds the unique key in the record of each job, for those whose key another job holds.
        `records`: id → record."""
        digests = dict[str, str]()
        for id, record in records.items():
            with suppress(CorruptRecord):
                if digest := decode(id, queue, record).controls.unique:
                    digests[id] = digest
        if not digests:
            return {}
        locks, now = self.transport.command("HMGET", self.keys.of(queue)["unique"], *digests.values()), self.now()
        held = dict[str, str]()
        for id, lock in zip(digests, locks, strict=True):
            until, _, holder = (lock or b"").decode(errors="replace").partition(":")
            if holder not in ("", id) and (until == "0" or read_number(until) > now):
                held[id] = holder
        return held

    def reported(self, queues: Sequence[str], id: str) -> str:
        """Return `Claim.report` of the last attempt of this job that was ended by a claim with one; "" if it is not
        known.  Known for a quarter of an hour, for at least the last 50,000 jobs of the queue, even if the job has
        left the store.  One round trip for all queues in which the job may be."""
        names = [self.keys.of(queue)[key] for queue in queues for key in ("recent", "recent_before")]
        found = self.transport.pipeline([("HGET", name, f"report:{id}") for name in names])
        return next((text.decode() for text in found if text), "")

    def _moves(self, queue: str, ids: Sequence[str]) -> dict[str, Move]:
        """Return where those of these jobs went that have left this queue to be retried in another one (`settle`)."""
        entries = self.transport.command("HMGET", self.keys.of(queue)["remembered"], *ids) if ids else ()
        moves: dict[str, Move] = {}
        for id, entry in zip(ids, entries, strict=True):
            number, _, goal = (entry or b"").partition(b":>")[2].decode(errors="replace").partition(">")
            if goal:
                moves[id] = Move(f"{number}:moved:{id}", read_number(number.encode()), goal)
        return moves

    def _last_queue(self, queue: str, id: str) -> str:
        """Return the queue to which retries have moved a job that was in this queue; this one if they have not."""
        last, found = 0, queue
        while (move := self._moves(found, [id]).get(id)) and move.number > last:
            found, last = move.queue, move.number
        return found

    def remembered(self, queue: str, id: str) -> RememberedId | None:
        """Return the entry of an id that was given with a digest, or None.  It is kept as long as the job is
        in the store, and for `StoreOptions.idempotency` ms after the job's end.  If a retry has moved the job, the
        entry is that of the queue to which it went."""
        names = self.keys.of(self._last_queue(queue, id))
        value, at = self.transport.pipeline([("HGET", names["remembered"], id), ("ZSCORE", names["remembered_at"], id)])
        if value is None or at is None:
            return None
        digest, _, state = value.decode(errors="replace").partition(":")
        if state and read_number(at) + self.options.idempotency <= self.now():
            return None
        return RememberedId(digest, State(state) if state in FINISHED else None, read_number(at))

    def taken_by(self, queues: Sequence[str], id: str) -> tuple[str, str] | None:
        """Return the queue and the id of the job that had the unique key when the job with this id was to be added;
        None if it was no duplicate.  Known for as long as the id is remembered.  One round trip for all queues."""
        found = self.transport.pipeline([("HGET", self.keys.of(queue)["remembered"], id) for queue in queues])
        for queue, entry in zip(queues, found, strict=True):
            holder = (entry or b"").partition(b":=")[2].partition(b">")[2].decode(errors="replace")
            if holder:
                return queue, holder
        return None

    def has_returned_none(self, queue: str, id: str) -> bool:
        """Tell whether this job, which is no longer in the store, succeeded and returned None.  Known for a minute
        after HISTORY removed it, for at least the last 50,000 jobs of the queue; also if a retry has moved it to
        another one."""
        names = self.keys.of(self._last_queue(queue, id))
        texts = self.transport.pipeline([("GET", names[key]) for key in ("returned", "returned_before")])
        return any(f"\n{id}\n".encode() in (text or b"") for text in texts)

    def _in_lane(self, found: Standing, id: str, key: str, place: str, score: float) -> Standing:
        suspect = score < 0 and place == "alone"
        base = -SUSPECT if suspect else 0
        # The first score of its priority; another program may have given it an infinite one.
        first = base + int((score - base) // STEP) * STEP if isfinite(score) else score
        lowest = "-inf" if suspect or place == "queued" else 0  # the others of this lane do not wait for suspects
        # Not the score alone: jobs that came back together have the same one, and are claimed in order of their ids.
        rank, others, higher = self.transport.pipeline(
            [("ZRANK", key, id), ("ZCOUNT", key, "-inf", f"({lowest}"), ("ZCOUNT", key, lowest, f"({first:.0f}")]
        )
        ahead = 0 if rank is None else int(rank) - int(others)
        lane = "suspect" if suspect else "shared" if place == "queued" else "alone"
        return found._replace(state=State.QUEUED, lane=lane, ahead=max(0, ahead), higher=int(higher))

    def refusal(self, queue: str) -> str:
        """Return why the store does not take changes now, in its own words, although it can be read: it is a replica,
        its disk is full; "" if it does, or if this user may not ask."""
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


def _is_killed(stop: bytes | None) -> bool:
    return b"\0" in (stop or b"")


def _holder_in(stop: bytes | None) -> str:
    """Return the holder in a value of `stops`: see lua/lib/ends/endings.lua."""
    return (stop or b"").partition(b":")[2].partition(b"\0")[0].decode(errors="replace")


class Oldest:
    """Since when the oldest job of one queue can run, for users who may not run scripts (lua/lib/lanes/oldest.lua).

    Takes a few round trips for each priority that has jobs."""

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
            following = float((place + 1) * STEP)
            # A foreign score may be so large that adding to it changes nothing.
            start = f"{following:.0f}" if following > float(head[1]) else f"({float(head[1])!r}"
        return found

    def _command(self, verb: str, key: str, *args: Argument) -> Any:
        return self.transport.command(verb, self.names[key], *args)
