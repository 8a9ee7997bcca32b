"""SqliteStore: how workers claim jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, suppress

from django_jobs.core.values import Claim, Claimed, Completion, Expired, Lane, State
from django_jobs.exceptions import StoreError
from django_jobs.serialization.record import name_line
from django_jobs.stores.contract.batches import MAX_BYTES
from django_jobs.stores.contract.fetching import FetchingStore, Outlook
from django_jobs.stores.contract.running import MAX_BATCH, RunningStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.recent import find_recent, note_recent
from django_jobs.stores.sqlite.database.rows import BEGIN, COLUMNS, SUSPECT, Row
from django_jobs.stores.sqlite.database.transaction import ADMIT, Transaction
from django_jobs.stores.sqlite.database.unknown import admit_known, is_parked, park, unknown_to

#: jobs that one claim checks and passes over; the next claim continues behind them.
PASS_OVER = 1000
_NEXT_PAUSED = (
    "SELECT blocked_by FROM jobs WHERE queue = ? AND state = 'blocked'"
    " AND blocked_by > ? AND blocked_by < 'pause;' ORDER BY blocked_by LIMIT 1"
)


class SqliteClaiming(SqlitePart, RunningStore, FetchingStore):
    """See stores/contract/running.py and fetching.py for the contract of each method."""

    def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        *,
        lane: Lane = Lane.SHARED,
        lease: int,
        max_running: int = 0,
        lease_each: bool = False,
        up_to: int | None = None,
        knows: str = "",
        names: Collection[str] = (),
        rank: int = 0,
        request: str = "",
        completion: Completion | None = None,
    ) -> Claimed:
        if completion is not None:
            with suppress(StoreError):
                completion.stale = self.complete(completion.queue, completion.done)
        parts = lane_parts(lane)
        separate = lane is not Lane.SHARED and not lease_each
        with self.writing(queue) as move:
            if request and (first := find_recent(move, f"claim:{request}")):
                return _again(move, int(first), lease, parts)
            closed = move.pauses()
            if "" in closed:
                return Claimed([], [], 0, next_opening(move), move.now)
            promote_due(move, ADMIT)
            admit_resumed(move, closed)
            room = min(limit, MAX_BATCH)
            if max_running:
                room = min(room, max_running - move.count_of(State.RUNNING))
            hidden = unknown_to(move, knows)
            if knows:
                admit_known(move, parts, hidden, min(room, ADMIT))
            claims: list[Claim] = []
            opened = move.opened()
            expired: list[Expired] = []
            token = passed = 0
            used: dict[str, int] = {}
            size = 0
            while len(claims) < room and passed < PASS_OVER and size < MAX_BYTES:
                found = _next(move, parts, room - len(claims), up_to, names, MAX_BYTES - size)
                size += sum(len(record) for _, record in found)
                for row, record in found:
                    one_by_one = separate and bool(row.at_most_once or row.crashes)
                    if one_by_one and claims:
                        room = len(claims)
                        break
                    if row.expires_at is not None and row.expires_at <= move.now:
                        move.move(row, State.EXPIRED)
                        expired.append(Expired(row.id, record, max(row.since, opened)))
                    elif row.name not in closed and hidden and (name := name_line(record)) in hidden:
                        park(move, row, name)
                    elif (by := _obstacle(move, row, closed, used)) is not None:
                        move.move(row, State.BLOCKED, blocked_by=by)
                    else:
                        token = token or move.number()
                        holder = f"{worker}:{row.id}" if lease_each else worker
                        may_wait = row.lane == SUSPECT and not lease_each
                        claims.append(_claim(move, row, record, holder, token, opened, may_wait=may_wait))
                        if lease_each:
                            set_lease(move, holder, lease)
                        if one_by_one:
                            room = 1
                            break
                        continue
                    passed += 1
                if not found:
                    break
            if claims and not lease_each:
                set_lease(move, worker, lease)
            if claims and request:
                note_recent(move, f"claim:{request}", str(token))
            others = bool(knows) and not claims and is_parked(move, parts)
            left = move.count_of(State.QUEUED, parts) if up_to is None else _arrived(move, up_to, parts)
            return Claimed(claims, expired, left, next_due(move), move.now, others)

    def last_arrival(self, queue: str) -> int:
        while self.promote(queue):
            pass
        with self.database.read() as connection:
            return self.reading(queue, connection).value("SELECT seq FROM queues WHERE queue = ?", queue) or 0

    def waiting(self, queue: str, up_to: int) -> int:
        with self.database.read() as connection:
            view = self.reading(queue, connection)
            if "" in view.pauses():
                return 0
            return _arrived(view, up_to, (0, SUSPECT))

    def is_replicated(self, claim: Claim, replicas: int, timeout: int) -> bool:
        with self.database.read() as connection:
            return self.reading(claim.queue, connection).held(claim) is not None

    def promote(self, queue: str, limit: int = 100) -> int:
        with self.writing(queue) as move:
            admit_resumed(move, move.pauses())
            return promote_due(move, limit)

    def backlog(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, int]:
        with self.database.read() as connection:
            return {q: self.reading(q, connection).count_of(State.QUEUED, lane_parts(lane)) for q in queues}

    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        with self.database.read() as connection:
            return {queue: outlook_of(self.reading(queue, connection), lane) for queue in queues}


def lane_parts(lane: Lane) -> tuple[int, ...]:
    """Return the values of column `lane` in the order in which they are served."""
    match lane:
        case Lane.SHARED:
            return (0,)
        case Lane.ALONE:
            return (SUSPECT, 1)
        case Lane.CLEAR:
            return (1,)


def _arrived(move: Transaction, up_to: int, parts: Sequence[int]) -> int:
    """Count the jobs of these lanes that had arrived by then, at most a thousand: it must cost no more than a claim."""
    some = "SELECT 1 FROM jobs WHERE queue = ? AND state = 'queued' AND lane BETWEEN ? AND ? AND seq <= ? LIMIT ?"
    n: int = move.value(f"SELECT count(*) FROM ({some})", move.queue, min(parts), max(parts), up_to, MAX_BATCH)
    return n


def _again(move: Transaction, token: int, lease: int, parts: Sequence[int]) -> Claimed:
    """Return the jobs of an earlier claim that are still held, with a new lease."""
    claims = []
    for row in move.rows("state = 'running' AND token = ? ORDER BY jobs.job", token):
        holder, known = row.holder or "", (row.failures, row.crashes, row.parked_at)
        longer = "UPDATE leases SET until = max(until, ?) WHERE queue = ? AND holder = ?"
        move.execute(longer, (move.now + lease, move.queue, holder))
        at, suspect = row.at or 0, row.lane == SUSPECT
        claims.append(Claim(row.id, move.queue, token, move.record(row), *known, at, holder, suspect, row.since))
    return Claimed(claims, [], move.count_of(State.QUEUED, parts), next_due(move), move.now)


def _next(
    move: Transaction, parts: Sequence[int], limit: int, up_to: int | None, names: Collection[str], most_bytes: int
) -> list[tuple[Row, bytes]]:
    """Return the first jobs of these lanes, at most `limit`, and none after their records together take `most_bytes`.

    A record that is not returned is not read: SQLite makes each row when it is fetched."""
    # A job that was handed back has a number below 0.
    arrived = "" if up_to is None else f" AND seq <= {up_to:d}"
    chosen = f" AND (name IN ({', '.join('?' * len(names))}) OR instr(record, x'0A') = 0)" if names else ""
    sql = (
        f"SELECT record, {COLUMNS} FROM jobs JOIN records USING (job)"
        f" WHERE queue = ? AND state = 'queued' AND lane = ?{arrived}{chosen} ORDER BY rank, seq LIMIT ?"
    )
    found: list[tuple[Row, bytes]] = []
    for part in parts:
        with closing(move.execute(sql, (move.queue, part, *names, limit - len(found)))) as rows:
            for record, *columns in rows:
                found.append((Row._make(columns), record))
                most_bytes -= len(record)
                if len(found) == limit or most_bytes <= 0:
                    return found
    return found


def _obstacle(move: Transaction, row: Row, closed: dict[str, tuple[str, int, int]], used: dict[str, int]) -> str | None:
    """Return the key that the job must wait for; if there is none, take a slot of its limit and return None."""
    if row.name in closed:
        return f"pause:{row.name}"
    key = row.limit_key
    if key is None or row.slots <= 0:
        return None
    if key not in used:
        used[key] = move.running(key)
    if used[key] >= row.slots:
        return f"limit:{key}"
    used[key] += 1
    return None


def _claim(
    move: Transaction, row: Row, record: bytes, holder: str, token: int, opened: int, *, may_wait: bool
) -> Claim:
    since = max(row.since, opened)
    waits = may_wait and 0 < row.crashes >= move.options.max_crashes - 1
    by = BEGIN if waits else None
    move.move(row, State.RUNNING, at=move.now, token=token, holder=holder, since=since, blocked_by=by)
    known = (row.failures, row.crashes, row.parked_at, move.now, holder, row.lane == SUSPECT, since)
    return Claim(row.id, move.queue, token, record, *known, has_to_wait=waits)


def set_lease(move: Transaction, holder: str, lease: int) -> None:
    """Give the holder a lease of `lease` ms from now."""
    move.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (move.queue, holder, move.now + lease))


def promote_due(move: Transaction, limit: int) -> int:
    """scheduled and retry → queued, for jobs that are due, earliest first."""
    due = [
        row
        for state in ("scheduled", "retry")
        for row in move.rows(f"state = '{state}' AND at <= ? ORDER BY at, seq LIMIT ?", move.now, limit)
    ]
    due.sort(key=lambda row: (row.at, row.seq))
    for row in due[:limit]:
        move.move(row, State.QUEUED, since=row.at)
    return len(due[:limit])


def admit_resumed(move: Transaction, closed: dict[str, tuple[str, int, int]]) -> None:
    """blocked → queued, for some jobs of types whose pause is over."""
    if not move.count_of(State.BLOCKED):
        return
    by = move.value(_NEXT_PAUSED, move.queue, "pause:")
    while by is not None:
        name = by.removeprefix("pause:")
        if name not in closed:
            move.admit_type(name)
        by = move.value(_NEXT_PAUSED, move.queue, by)


def outlook_of(view: Transaction, lane: Lane) -> Outlook:
    """Return the jobs of that lane that a claim may find in the queue, now or later."""
    closed = view.pauses()
    if "" in closed:
        return Outlook(0, next_opening(view))
    left = view.count_of(State.QUEUED, lane_parts(lane))
    return Outlook(left, 0 if _some_are_resumed(view, closed) else next_due(view))


def _some_are_resumed(view: Transaction, closed: dict[str, tuple[str, int, int]]) -> bool:
    """Tell whether a job waits for a pause that is over.  The next claim lets it in."""
    if not view.count_of(State.BLOCKED):
        return False
    after = "pause:"
    while (by := view.value(_NEXT_PAUSED, view.queue, after)) is not None:
        if by.removeprefix("pause:") not in closed:
            return True
        after = by
    return False


def next_due(move: Transaction) -> int | None:
    """Return the ms until the next scheduled or retry job is due, or a pause ends."""
    dues = [
        move.value(f"SELECT min(at) FROM jobs WHERE queue = ? AND state = '{state}' AND at IS NOT NULL", move.queue)
        for state in ("scheduled", "retry")
    ]
    waits = [max(0, due - move.now) for due in dues if due is not None]
    opening = next_opening(move)
    return min(waits if opening is None else [*waits, opening], default=None)


def next_opening(move: Transaction) -> int | None:
    """Return the ms until the first pause of the queue or of a type ends by itself."""
    sql = "SELECT min(until) FROM pauses WHERE queue = ? AND until > ?"
    until: int | None = move.value(sql, move.queue, move.now)
    return None if until is None else until - move.now
