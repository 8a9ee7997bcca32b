"""Checks one queue of a Store against its invariants: what must be true between any two scripts.

All keys are read in one transaction, so that a queue in use can be checked, too; it costs O(everything in the
queue).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_jobs.core.values import FINISHED, PLAIN, WAITING, Controls, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.formatting import counted
from django_jobs.serialization.record import decode, name_of, tags_of
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.entries import read_claim, read_holdings, read_number
from django_jobs.stores.redis.connection.keys import EARLIER_KEYS, QUEUE_KEYS
from django_jobs.stores.redis.stats import PLACES

_READ = {
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "string": ("GET",),
    "stream": ("XRANGE", "-", "+"),
}
#: The keys with a job's data outside its record: their fields are ids.
BELONGINGS = ("tries", "attempts", "results", "checkins", "waits", "stops", "waiters")
#: unique_mode → states in which a lock without an end is held.
COVERED = {
    "queued": WAITING,
    "running": WAITING | {State.RUNNING},
    "success": WAITING | {State.RUNNING},
}


def fsck(store: Store, queue: str) -> list[str]:
    """Return every broken invariant of the queue as a sentence; [] if there is none.  Raises StoreError."""
    names = store.keys.of(queue)
    prefix = names["jobs"].removesuffix("jobs")
    stray = {_text(key).removeprefix(prefix) for key in store.transport.client.scan_iter(_escape(prefix) + "*")}
    wrong = _wrong_types(store, names)
    problems = [
        f"{key} is not a key of django_jobs"
        for key in sorted(stray - QUEUE_KEYS.keys() - EARLIER_KEYS)
        if ":set-aside:" not in key
    ]
    problems += [f"{key} is a {kind}, not a {QUEUE_KEYS[key]}" for key, kind in wrong.items()]
    return problems if wrong else problems + list(Snapshot(store, queue).problems())


def _wrong_types(store: Store, names: dict[str, str]) -> dict[str, str]:
    types = store.transport.pipeline([("TYPE", name) for name in names.values()])
    kinds = {key: _text(kind) for key, kind in zip(names, types, strict=True)}
    return {key: kind for key, kind in kinds.items() if kind not in ("none", QUEUE_KEYS[key])}


class Snapshot:
    """All keys of one queue at one moment."""

    def __init__(self, store: Store, queue: str) -> None:
        self.queue = queue
        names = store.keys.of(queue)
        with store.transport.client.pipeline(transaction=True) as pipe:
            for key, kind in QUEUE_KEYS.items():
                verb, *rest = _READ[kind]
                pipe.execute_command(verb, names[key], *rest)
            values = dict(zip(QUEUE_KEYS, pipe.execute(), strict=True))
        self.of: dict[str, Any] = {
            key: _fields(value) if QUEUE_KEYS[key] in ("hash", "zset") else value for key, value in values.items()
        }
        self.seq = int(values["seq"] or 0)
        self.jobs: dict[bytes, bytes] = self.of["jobs"]
        self.places = self._places()
        #: jobs that were killed and whose process may still be running them.
        self.ending = {id for id, value in self.of["stops"].items() if b"\0" in value}

    def _places(self) -> dict[bytes, list[str]]:
        """Return id → all places that name it."""
        out: dict[bytes, list[str]] = {}
        for place, _ in PLACES:
            for member in self.of[place]:
                out.setdefault(member.rpartition(b"\0")[2] if place == "blocked" else member, []).append(place)
        return out

    def state(self, id: bytes) -> State | None:
        """Return the job's state, by the first place that names it."""
        places = self.places.get(id)
        return dict(PLACES)[places[0]] if places else None

    def controls(self, id: bytes) -> Controls:
        """Return the controls in the job's record; PLAIN if it cannot be read."""
        try:
            return decode(_text(id), self.queue, self.jobs.get(id, b"")).controls
        except CorruptRecord:
            return PLAIN

    def problems(self) -> Iterator[str]:
        """Yield each broken invariant."""
        yield from self._one_place_each()
        yield from self._claims()
        yield from self._slots()
        yield from self._blocked()
        yield from self._locks()
        yield from self._index()
        for wake in ("wake", "wake_alone"):
            if len(self.of[wake]) > 1:
                yield f"{wake} grows without bound: its length is {len(self.of[wake])}"

    def _one_place_each(self) -> Iterator[str]:
        for id in self.jobs.keys() - self.places.keys():
            yield f"job {_text(id)} is in no place"
        for id, places in self.places.items():
            if id not in self.jobs:
                yield f"{', '.join(places)} names job {_text(id)}, which has no record"
            elif len(places) > 1:
                yield f"job {_text(id)} is in several places: {', '.join(places)}"
        for key in BELONGINGS:
            for id in self.of[key].keys() - self.jobs.keys():
                yield f"{key} has an entry of job {_text(id)}, which has no record"
        for id in self.of["remembered"].keys() ^ self.of["remembered_at"].keys():
            yield f"id {_text(id)} is in only one of remembered and remembered_at"
        for key in ("checkins", "stops"):
            for id in self.of[key].keys() - self.of["claims"].keys() - (self.ending if key == "stops" else set()):
                yield f"{key} has an entry of job {_text(id)}, which does not run"

    def _claims(self) -> Iterator[str]:
        leases = {_text(holder) for holder in self.of["leases"]}
        for id, claim in self.of["claims"].items():
            token, _, holder = read_claim(claim)
            if not 0 < token <= self.seq:
                yield f"claim of job {_text(id)} has token {token}, but the last number of the queue is {self.seq}"
            if holder not in leases:
                yield f"claim of job {_text(id)} is held by {holder!r}, which has no lease"

    def holdings(self) -> Iterator[str]:
        """Yield each difference between `holdings` and `claims`.  It is not a fault, because `holdings` is counted
        again when it matters, but no transition should leave one behind."""
        counted: dict[str, dict[int, int]] = {}
        for id, claim in self.of["claims"].items():
            token, _, holder = read_claim(claim)
            if not holder.endswith(f":{_text(id)}"):
                tokens = counted.setdefault(holder, {})
                tokens[token] = tokens.get(token, 0) + 1
        noted = {_text(holder): dict(read_holdings(lines)) for holder, lines in self.of["holdings"].items()}
        for holder in counted.keys() | noted.keys():
            if counted.get(holder) != noted.get(holder):
                yield f"{holder!r} holds {counted.get(holder)}, but holdings says {noted.get(holder)}"

    def expiries(self) -> Iterator[str]:
        """Yield each difference between `expiries` and the jobs that wait, have not begun and expire.  It is not a
        fault, because a claim meets these jobs, too, but no transition should leave one behind."""
        waiting = [id for id in self.places if self.state(id) in WAITING]
        late = {id: self.controls(id).expires_at for id in waiting if not _has_begun(self.of["tries"].get(id, b""))}
        wanted = {id: at for id, at in late.items() if at is not None}
        for id in wanted.keys() | self.of["expiries"].keys():
            noted = self.of["expiries"].get(id)
            if (noted and read_number(noted)) != wanted.get(id):
                yield f"job {_text(id)} expires at {wanted.get(id)}, but expiries says {noted}"

    def _slots(self) -> Iterator[str]:
        held: dict[bytes, int] = {}
        for member in self.of["slots"]:
            key, _, id = member.partition(b"\0")
            held[key] = held.get(key, 0) + 1
            if id not in self.of["claims"] and id not in self.ending:
                yield f"a slot of {_text(key)!r} is held by job {_text(id)}, which does not run"
        for id in self.of["claims"]:
            controls = self.controls(id)
            if controls.limit_key is None:
                continue
            key = controls.limit_key.replace("\0", "").encode()
            if key + b"\0" + id not in self.of["slots"]:
                yield f"job {_text(id)} runs without a slot of {controls.limit_key!r}"
            elif controls.limit and held.get(key, 0) > controls.limit:
                yield f"{counted(held[key], 'job')} run under limit {controls.limit} of {controls.limit_key!r}"

    def _blocked(self) -> Iterator[str]:
        waits, members = self.of["waits"], self.of["blocked"]
        for id, member in waits.items():
            if member not in members:
                yield f"waits says that job {_text(id)} is blocked, but blocked does not"
        # For each limit with waiting jobs, there must be a job whose end lets the next one in.
        moving = {member.partition(b"\0")[0] for member in self.of["slots"]}
        for id in (*self.of["queued"], *self.of["alone"]):
            moving.add((self.controls(id).limit_key or "").replace("\0", "").encode())
        for member in members:
            key, _, rest = member.partition(b"\0")
            id = rest.rpartition(b"\0")[2]
            if waits.get(id) != member:
                yield f"blocked names job {_text(id)}, but waits does not"
            if key == b"\3" + id:
                if id not in self.ending:
                    yield f"job {_text(id)} waits for the end of its last attempt, which has ended"
            elif not key.startswith((b"\2", b"\4")) and key not in moving:
                yield f"job {_text(id)} waits for limit {_text(key)!r}, which no job holds"

    def _index(self) -> Iterator[str]:
        places = {"d": self.of["dead"], "r": self.of["retry"]}
        fields = {field[:1] + value.partition(b":")[0]: field for field, value in self.of["error_groups"].items()}
        fields |= {field[:1] + value.partition(b":")[0]: field for field, value in self.of["tag_groups"].items()}
        entered: dict[tuple[str, bytes], set[bytes]] = {}
        for member in self.of["failures"]:
            group, id, at = member[:13], member[26:], int(member[13:26]) if member[13:26].isdigit() else -1
            letter = _text(group[:1]).lower()
            if group not in fields:
                yield f"job {_text(id)} is in a group of failed jobs that is not known"
            if id not in places.get(letter, ()) or read_number(places[letter][id]) != at:
                yield f"group {_text(fields.get(group, group))!r} has job {_text(id)} at {at}, where it is not"
            entered.setdefault((letter, id), set()).add(group)
        for id in self.of["grouped"].keys() - {id for _, id in entered}:
            yield f"grouped has job {_text(id)}, which is in no group"
        for letter, place in places.items():
            for id in place:
                groups = entered.get((letter, id), set())
                noted = self.of["grouped"].get(id, b"")
                if sorted(groups) != sorted(noted[i : i + 13] for i in range(0, len(noted), 13)):
                    yield f"grouped says that job {_text(id)} is in {_text(noted)!r}, but it is in others"
                yield from self._groups(letter, id, {_text(fields.get(group, b"")) for group in groups})

    def _groups(self, letter: str, id: bytes, fields: set[str]) -> Iterator[str]:
        """Yield what is wrong with the groups of a failed job."""
        record = self.jobs.get(id, b"")
        by_error, tags = [field for field in fields if field[:1] == letter], set(tags_of(record))
        if [field[1:].partition("\n")[0] for field in by_error] != [name_of(record)]:
            yield f"job {_text(id)} is in the groups {by_error!r} of failed jobs"
        known = {_text(field) for field in self.of["tag_groups"]}
        other = letter.upper()
        if fields - {*by_error} != {other + tag if other + tag in known else other for tag in tags}:
            yield f"job {_text(id)} has the tags {sorted(tags)}, but is in {sorted(fields - {*by_error})}"

    def _locks(self) -> Iterator[str]:
        for digest, value in self.of["unique"].items():
            until, _, id = value.partition(b":")
            if until != b"0" or id in self.ending:  # a killed attempt keeps its lock
                continue
            state, controls = self.state(id), self.controls(id)
            if state is None or state in FINISHED:
                yield f"lock {_text(digest)[:16]} belongs to job {_text(id)}, which is {state or 'gone'}"
            elif controls.unique != _text(digest):
                yield f"lock {_text(digest)[:16]} belongs to job {_text(id)}, which has another key"
            elif state not in COVERED.get(controls.unique_mode, WAITING):
                yield f"lock {_text(digest)[:16]} is held by job {_text(id)}, which is {state} ({controls.unique_mode})"


def _fields(reply: Any) -> dict[bytes, Any]:
    """Read HGETALL, or ZRANGE … WITHSCORES, in whatever form the client returns it."""
    if isinstance(reply, dict):
        return reply
    if reply and isinstance(reply[0], (tuple, list)):
        return dict(reply)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _has_begun(tries: bytes) -> bool:
    """Read a value of `tries` as lua/lib/jobs/log.lua does."""
    failures, _, rest = tries.partition(b":")
    return len(failures) > 1 or bool(failures.strip(b"0") or rest.partition(b":")[0].strip(b"0"))


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _escape(prefix: str) -> str:
    return "".join("\\" + c if c in "*?[]\\^" else c for c in prefix)
