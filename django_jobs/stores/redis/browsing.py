"""The methods for viewing jobs, by plain reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

from django_jobs.core.values import NOT_READY, JobInfo, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.checked import Unreadable, loaded, read_number, whole
from django_jobs.serialization.record import decode
from django_jobs.stores.redis.connection.entries import (
    has_begun,
    read_attempts,
    read_claim,
    read_tries,
    texts,
)
from django_jobs.stores.redis.stats import PLACES, Stats, places_of
from django_jobs.stores.values.answers import ParkedName

#: A page of running jobs of one queue is sorted after reading; no more running jobs than this are read for it.
MOST_RUNNING = 10_000
#: What is read about a job besides its place, in the order of `_info`; some only for jobs in one state.
DETAILS = {
    "jobs": None,
    "tries": None,
    "results": State.SUCCEEDED,
    "attempts": None,
    "claims": State.RUNNING,
    "checkins": State.RUNNING,
    "since": None,
}
_READ = {kind: "ZMSCORE" if kind == "since" else "HMGET" for kind in DETAILS}
#: Bytes of a result that a page shows.
PREVIEW = 1024
#: Maximum number of names in the answer of `parked`.
MOST_NAMES = 100


class Browsing(Stats):
    """Views jobs.  Every method only reads (a viewer may have no right to write), and costs O(what it returns)."""

    def get(self, queue: str, id: str) -> JobInfo | None:
        """Return all that is known about one job, or None."""
        found = self._look_up(queue, [id], whole=True)
        return found[0] if found else None

    def _look_up(self, queue: str, ids: Sequence[str], *, whole: bool) -> list[JobInfo]:
        """Find these jobs in any place: one round trip for their places, one for each state that they are in."""
        if not ids:
            return []
        records, claims, waits, *scores = self._where(queue, ids)
        places = [(place, state) for place, state in PLACES if place not in ("claims", "blocked")]
        met: dict[State, list[tuple[str, int]]] = {}
        kept: set[str] = set()
        for i, id in enumerate(ids):
            if records[i] is None and claims[i] is None:
                continue
            state, at = State.QUEUED, 0
            for (place, belongs), column in zip(places, scores, strict=True):
                if column[i] is not None:
                    state, at = belongs, 0 if belongs is State.QUEUED else read_number(column[i])
                    if place == "kept":
                        kept.add(id)
            if waits[i] is not None:
                state, at = State.BLOCKED, 0
            if claims[i] is not None:
                state, at = State.RUNNING, read_claim(claims[i])[1]
            met.setdefault(state, []).append((id, at))
        infos = {
            info.id: info
            for state, found in met.items()
            for info in self._describe(queue, state, found, whole=whole, kept=kept)
        }
        return [infos[id] for id in ids if id in infos]

    def parked(self, queue: str) -> list[ParkedName]:
        """Return the names whose jobs wait for a worker that knows them (see `park`), at most a hundred."""
        flat, fields = self._run("parked", queue, MOST_NAMES)
        met: dict[str, set[str]] = {}
        for digest, _, name in (field.decode(errors="replace").partition("\0") for field in fields):
            met.setdefault(name, set()).add(digest)
        jobs: Counter[str] = Counter()
        for i in range(0, len(flat), 2):
            jobs[flat[i].decode(errors="replace")] += int(flat[i + 1])
        return [ParkedName(queue, name, number, frozenset(met.get(name, ()))) for name, number in jobs.items()]

    def page(
        self, queue: str, state: State, offset: int = 0, limit: int = 50, *, reverse: bool = False
    ) -> list[JobInfo]:
        """Return a page of jobs in one state: with only the last attempt of each log, and at most 1 kB of a result.

        Order: queued in the order they will run (lane shared, then alone); scheduled and retry by due time; running by
        claim time; blocked by key; finished by end time.  `reverse` reverses the order (newest first for finished
        jobs)."""
        kept: set[str] = set()
        found = self._slice(queue, state, offset, limit, reverse, kept)
        return self._describe(queue, state, found, whole=False, kept=kept)

    def _slice(
        self, queue: str, state: State, offset: int, limit: int, reverse: bool, kept: set[str]
    ) -> list[tuple[str, int]]:
        """Return (id, score) for a page: by rank in the state's sorted set, or in both if the state has two.  The ids
        whose score is not the end of the job, but the time until which it is kept, are added to `kept`."""
        if state is State.RUNNING:
            return self._running(queue, reverse)[offset : offset + limit]
        names = self.keys.of(queue)
        places = places_of(state)
        out: list[tuple[str, int]] = []
        for place in reversed(places) if reverse else places:
            if offset and len(places) > 1:  # only then is the size needed, to find the offset in the second
                size = int(self.transport.command("ZCARD", names[place]))
                if offset >= size:
                    offset -= size
                    continue
            wanted = limit - len(out)
            verb = "ZREVRANGE" if reverse else "ZRANGE"
            flat = self.transport.command(verb, names[place], offset, offset + wanted - 1, "WITHSCORES")
            some = [(id_of(state, flat[i]), time_of(state, flat[i + 1])) for i in range(0, len(flat), 2)]
            out += some
            if place == "kept":
                kept.update(id for id, _ in some)
            offset = 0
            if len(out) >= limit:
                break
        return out

    def _running(self, queue: str, reverse: bool, most: float = MOST_RUNNING) -> list[tuple[str, int]]:
        cursor, claims = 0, {}
        while True:
            cursor, flat = self.transport.command("HSCAN", self.keys.of(queue)["claims"], cursor, "COUNT", 1000)
            cursor = int(cursor)
            for i in range(0, len(flat), 2):
                claims[flat[i].decode(errors="replace")] = read_claim(flat[i + 1])[1]
            if cursor == 0 or len(claims) >= most:
                return sorted(claims.items(), key=lambda item: item[1], reverse=reverse)

    def _describe(
        self,
        queue: str,
        state: State,
        found: list[tuple[str, int]],
        *,
        whole: bool,
        kept: Container[str] = (),
    ) -> list[JobInfo]:
        """Read everything else about these jobs, in one round trip; `kept`: jobs whose time is the end of their
        keeping."""
        if not found:
            return []
        names, ids = self.keys.of(queue), [id for id, _ in found]
        kinds = [kind for kind, of in DETAILS.items() if of in (None, state)]
        found_in = dict(
            zip(kinds, self.transport.pipeline([(_READ[kind], names[kind], *ids) for kind in kinds]), strict=True)
        )
        columns = [found_in.get(kind, [None] * len(ids)) for kind in DETAILS]
        return self._infos(queue, state, found, list(zip(*columns, strict=True)), whole=whole, kept=kept)

    def _infos(
        self,
        queue: str,
        state: State,
        found: Sequence[tuple[str, int]],
        rows: Sequence[Sequence[Any]],
        *,
        whole: bool,
        kept: Container[str] = (),
    ) -> list[JobInfo]:
        """Return these jobs as values; `rows`: their details in the order of DETAILS."""
        return [
            self._info(queue, state, id, _ended_at(at, row[0]) if id in kept else at, row, whole=whole)
            for (id, at), row in zip(found, rows, strict=True)
        ]

    def _info(self, queue: str, state: State, id: str, at: int, row: Sequence[Any], *, whole: bool) -> JobInfo:
        record, tries, result, attempts, claim, checkin, since = row
        failures, crashes, parked, earlier = read_tries(tries)
        (token, _, worker), (run_ms, body) = read_claim(claim), _read_result(result)
        if not whole:
            attempts = (attempts or b"").rpartition(b"\n")[2]
            body = body[:PREVIEW] if body else body
        return JobInfo(
            id,
            queue,
            record or b"",
            state,
            failures,
            crashes,
            at,
            token,
            worker,
            body,
            run_ms,
            _read_object(checkin),
            read_attempts(attempts),
            parked,
            abs(read_number(since or 0)) if state not in NOT_READY else 0,
            earlier,
            has_begun(tries),
        )

    def queues(self) -> list[str]:
        """Return the name of every queue that ever got a job, configured or not."""
        return sorted(texts(self.transport.command("SMEMBERS", self.keys.fleet("queues"))))


def id_of(state: State, member: bytes) -> str:
    """Return the id of a job by its member in a place of this state."""
    return (member.rpartition(b"\0")[2] if state is State.BLOCKED else member).decode(errors="replace")


def time_of(state: State, score: bytes | float) -> int:
    """Return `JobInfo.at` by the score there."""
    return 0 if state in (State.QUEUED, State.BLOCKED) else read_number(score)


def _read_result(text: bytes | None) -> tuple[int, bytes | None]:
    """Return the run time (ms) and the JSON of the value; nothing after the colon means that the value is None."""
    if text is None:
        return -1, None
    run, separator, body = text.partition(b":")
    try:
        return (whole(run), body or b"null") if separator else (-1, text)
    except Unreadable:
        return -1, text


def _read_object(text: bytes | None) -> dict[str, Any] | None:
    if not text:
        return None
    value = loaded(text)
    return value if isinstance(value, dict) else {"message": text.decode(errors="replace")}


def _ended_at(until: int, record: bytes | None) -> int:
    """Return when a job ended that is kept until `until`, by the `keep_result` in its record."""
    try:
        return until - (decode("", "", record or b"").controls.keep_result or 0)
    except CorruptRecord:
        return until
