"""Statistics, by one script for many queues, or by plain reads for a user who may not run scripts."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django_jobs.core import queue_stats, registry
from django_jobs.core.queue_stats import OVERDUE
from django_jobs.core.times import OTHER, SLOTS, Times, add_times, read_slots
from django_jobs.core.values import Pause, QueueStats, State
from django_jobs.samples.chart import Sampled
from django_jobs.samples.log import all_of, fields_of, read, types_of
from django_jobs.samples.times import RunTimes, fields_at, run_times
from django_jobs.serialization.checked import read_count, read_number
from django_jobs.stores.redis.connection.part import Part
from django_jobs.stores.redis.standing import Oldest

#: In the order of lua/listing/stats.lua; a state with two places is listed twice.
PLACES = (
    ("scheduled", State.SCHEDULED),
    ("queued", State.QUEUED),
    ("alone", State.QUEUED),
    ("claims", State.RUNNING),
    ("retry", State.RETRY),
    ("blocked", State.BLOCKED),
    ("succeeded", State.SUCCEEDED),
    ("kept", State.SUCCEEDED),
    ("dead", State.DEAD),
    ("cancelled", State.CANCELLED),
    ("expired", State.EXPIRED),
)

#: How the times of a queue are read.
TIMES = (("GET", "times"), ("HGETALL", "timed"))
MINUTE = 60_000
#: A series of up to this many minutes is read field by field; for a longer one, the whole hash is read.
FEW_MINUTES = 120
#: Events without a counter of their own in `totals`: it would be one more command for each job.
BY_NAME = ("enqueued", "succeeded")
#: Queues that one call counts: about ten milliseconds if all of them are in use.
COUNTED_AT_ONCE = 100
#: Queues whose samples one call reads: all totals of each are read.
SAMPLED_AT_ONCE = 20
SERIES = ("enqueued", "succeeded", "failed", "dead", "run_ms", "wait_ms")


def places_of(state: State) -> list[str]:
    """Return the keys that list the jobs of this state."""
    return [place for place, belongs in PLACES if belongs is state]


class Stats(Part):
    """Reads many places in one call, by a script or by plain reads."""

    def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Return counts, latency, pauses, totals, overdue jobs and what waits for the archive, of each queue, in one
        round trip.

        `counts` has all nine states.  `totals`: "enqueued", "succeeded", "failed", "retried", "dead", "cancelled",
        "expired", "recovered", "trimmed_dead", "not_archived", and "<event>:<job name>" for the first five.  A job type
        has its current name here, in `paused_types`, and in what `times` returns."""
        found = self._by_script(
            lambda: self._read_over("stats", queues, OVERDUE, self._archiving, at_once=COUNTED_AT_ONCE, whole=True)
        )
        return [_read(queue, self._plain_stats(queue) if found is None else found[queue][0]) for queue in queues]

    def _where(self, queue: str, ids: Sequence[str]) -> list[Any]:
        """Return records, claims, waits, then scores in PLACES except claims and blocked: one column each, one value
        per id."""
        if (found := self._by_script(lambda: list(self._run("where", queue, *ids)))) is not None:
            return found
        names = self.keys.of(queue)
        places = [place for place, _ in PLACES if place not in ("claims", "blocked")]
        return self.transport.pipeline(
            [
                *(("HMGET", names[kind], *ids) for kind in ("jobs", "claims", "waits")),
                *(("ZMSCORE", names[place], *ids) for place in places),
            ]
        )

    def _plain_stats(self, queue: str) -> list[Any]:
        names = self.keys.of(queue)
        sizes = [("HLEN" if place == "claims" else "ZCARD", names[place]) for place, _ in PLACES]
        *counts, paused, totals, clock = self.transport.pipeline(
            [*sizes, ("HGETALL", names["paused"]), ("HGETALL", names["totals"]), ("TIME",)]
        )
        now = self._clock() or int(clock[0]) * 1000 + int(clock[1]) // 1000
        oldest = Oldest(self.transport, names, now).since()
        waiting = [names["scheduled"], names["retry"]]
        late = self.transport.pipeline([("ZCOUNT", zset, "-inf", now - OVERDUE) for zset in waiting])
        zsets = [*waiting, names["dead"]]
        heads = self.transport.pipeline([("ZRANGE", zset, 0, 0, "WITHSCORES") for zset in zsets])
        *due, died = (_first_score(head) for head in heads)
        late_since = min((at for at, number in zip(due, late, strict=True) if number), default=0)
        unarchived = self.transport.command("LLEN", names["archive"])
        return [now, counts, oldest, _flat(paused), _flat(totals), sum(late), late_since, died, unarchived]

    def times(self, queues: Sequence[str]) -> dict[str, dict[str, Times]]:
        """Return queue → job type → how long its attempts waited and ran, since the store began.

        This counts the attempts that `complete`, `retry` and `bury` ended and whose times are known.  If some claims of
        a call were lost, their attempts are counted too, because they ran.  Job types after the first MOST_NAMES of a
        queue are counted together, under OTHER."""
        replies = self.transport.pipeline(
            [(command, self.keys.of(queue)[key]) for queue in queues for command, key in TIMES]
        )
        return {
            queue: _read_times(replies[2 * at] or b"", _flat(replies[2 * at + 1])) for at, queue in enumerate(queues)
        }

    def run_times(
        self, queues: Sequence[str], periods: Sequence[str], totals: Mapping[str, Mapping[str, Times]]
    ) -> dict[str, list[RunTimes]]:
        """Return for each period, "day" or "week", how long the attempts of that time waited and ran, by queue and job
        type.  `totals`: what `times` returns for these queues.

        A period is longer by up to an eighth, and shorter if no sample was taken before (`RunTimes.since`)."""
        now, fields = self.now(), [field for period in periods for field in fields_at(period)]
        texts = self.transport.pipeline([("HMGET", self.keys.of(queue)["samples"], *fields) for queue in queues])
        found: dict[str, list[RunTimes]] = {period: [] for period in periods}
        for queue, own in zip(queues, texts, strict=True):
            for period in periods:
                some = [text for field, text in zip(fields, own, strict=True) if text and field in fields_at(period)]
                found[period] += run_times(queue, now, totals[queue], some, period)
        return found

    def samples(self, queues: Sequence[str], width: int, *, types: bool = False) -> dict[str, Sampled]:
        """Return the samples that were taken of the totals of each queue, and the totals of now: of the whole queue, or
        of its job types, by their identities.  `width`: FINE or COARSE (ms).  Queues of servers that do not answer are
        left out; raises StoreUnavailable if none answers."""
        field = fields_of(width)[types]
        found: dict[str, Sampled] = {}
        for queue, (now, _, (text,), totals) in self._sampled(queues, "types" if types else "all", field).items():
            numbers = read_totals(totals)
            log = read((text or b"").decode(errors="replace"))
            found[queue] = Sampled(log, types_of(numbers) if types else all_of(numbers), read_number(now))
        return found

    def _sampled(self, queues: Sequence[str], which: str, *fields: str) -> dict[str, list[Any]]:
        """Return what lua/listing/sampled.lua returns of each queue."""
        read = self._by_script(lambda: self._read_over("sampled", queues, which, *fields, at_once=SAMPLED_AT_ONCE))
        if read is not None:
            return {queue: answer for queue, (answer,) in read.items()}
        names, now = [self.keys.of(queue) for queue in queues], str(self.now())
        texts = self.transport.pipeline([("HMGET", each["samples"], "taken", *fields) for each in names])
        totals = self.transport.pipeline([("HGETALL", each["totals"]) for each in names])
        return {
            queue: [now, taken or b"", found, _flat(flat)]
            for queue, (taken, *found), flat in zip(queues, texts, totals, strict=True)
        }

    def sums(self, queues: Sequence[str], since: int) -> dict[int, dict[str, int]]:
        """Return start of the minute (ms) → event → count, added up over these queues, from the minute of `since` (ms).

        Events: "enqueued", "succeeded", "failed", "dead", and the sums of ms "run_ms" and "wait_ms".  Kept for 25
        hours."""
        minutes = range(since - since % MINUTE, self.now() + 1, MINUTE)
        keys = [self.keys.of(queue)["minutes"] for queue in queues]
        many: Iterable[Sequence[Any]] | None
        if len(minutes) > FEW_MINUTES:
            many = (self.transport.command("HGETALL", key) for key in keys)
        elif (many := self._by_script(lambda: self._run_over("series", queues, minutes.start, *SERIES))) is None:
            fields = [f"{minute}:{event}".encode() for minute in minutes for event in SERIES]
            values = self.transport.pipeline([("HMGET", key, *fields) for key in keys if fields])
            many = ([part for pair in zip(fields, own, strict=True) for part in pair] for own in values)
        sums: defaultdict[int, dict[str, int]] = defaultdict(Counter)
        for flat in many:
            for field, number in zip(flat[::2], flat[1::2], strict=True):
                minute, _, event = field.decode(errors="replace").partition(":")
                if number is not None and (at := read_count(minute)) >= minutes.start:
                    sums[at][event] += read_count(number)
        return sums


def _first_score(head: Any) -> int:
    """Return the lowest score of a sorted set, from a ZRANGE with scores in either form of the protocol; 0 if empty."""
    return read_number(head[0][1] if isinstance(head[0], list | tuple) else head[1]) if head else 0


def _flat(reply: Any) -> list[bytes]:
    """Return HGETALL as a flat list of fields and values, even if the client made a dict of it."""
    return [part for item in reply.items() for part in item] if isinstance(reply, dict) else list(reply)


def _read_times(numbers: bytes, places: Sequence[bytes]) -> dict[str, Times]:
    """Return job type → times; see lua/lib/ends/times.lua."""
    named = {OTHER: 0} | {
        places[i].decode(errors="replace"): read_number(places[i + 1]) for i in range(0, len(places), 2)
    }
    width, found = 8 * SLOTS, dict[str, Times]()
    for name, place in named.items():
        part = numbers[place * width : (place + 1) * width].ljust(width, b"\0")
        if any(part):
            times, current = read_slots(struct.unpack(f">{SLOTS}q", part)), registry.current_name(name)
            found[current] = add_times([found[current], times]) if current in found else times
    return found


def read_totals(flat: Sequence[bytes]) -> dict[str, int]:
    """Return event → count.  What is counted by name only is added up."""
    totals = {flat[i].decode(errors="replace"): read_count(flat[i + 1]) for i in range(0, len(flat), 2)}
    for event in BY_NAME:
        totals[event] = sum(number for field, number in totals.items() if field.startswith(f"{event}:"))
    return totals


def _by_current_name(totals: Mapping[str, int]) -> dict[str, int]:
    """Return totals, which are stored by the identity of each type, by the name that it has now."""
    found: dict[str, int] = {}
    for field, number in totals.items():
        event, colon, name = field.partition(":")
        current = event + colon + registry.current_name(name)
        found[current] = found.get(current, 0) + number
    return found


def _read(queue: str, reply: list[Any]) -> QueueStats:
    now, sizes, oldest, paused, totals, overdue, overdue_since, died, unarchived = reply
    counts = dict.fromkeys((state.value for state in State), 0)
    for (_, state), size in zip(PLACES, sizes, strict=True):
        counts[state.value] += size
    texts = dict(zip(paused[::2], paused[1::2], strict=True))
    opened = read_pause(texts[b""]).until if b"" in texts else 0  # when the last pause ended, if it has
    pauses = {
        registry.current_name(name.decode(errors="replace")): read_pause(text)
        for name, text in texts.items()
        if not is_over(text, now)
    }
    since = max(read_number(oldest), opened)
    age = max(0, now - since) if since and read_number(oldest) else 0
    return QueueStats(
        queue,
        counts,
        latency=0 if "" in pauses else age,
        paused=pauses.pop("", None),
        paused_types=pauses,
        totals=_by_current_name(read_totals(totals)),
        overdue=overdue,
        overdue_since=read_number(overdue_since),
        dead_since=read_number(died),
        unarchived=unarchived,
        age=age,
    )


def is_over(pause: bytes, now: int) -> bool:
    """Return whether the pause with this value of `paused` has ended, by itself or by hand (see closed.lua)."""
    until, since, *_ = [*pause.split(b":", 2), b""]
    return read_count(until) > 0 and (read_count(until) <= now or since == b"0")


def read_pause(text: bytes) -> Pause:
    """Read a value of `paused`: until:since:reason."""
    until, _, rest = text.partition(b":")
    since, _, reason = rest.partition(b":")
    return queue_stats.read_pause(reason.decode(errors="replace"), read_count(until), read_count(since))
