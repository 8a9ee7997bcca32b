"""SqliteStore: how attempts end, by their worker or because the worker was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django_jobs.core.values import Attempt, Claim, Done, Ended, Killed, Recovered, State
from django_jobs.exceptions import StoreError
from django_jobs.serialization.record import name_line, waited_for
from django_jobs.stores.contract.running import MAX_BATCH, Renewal, RunningStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.claiming import set_lease
from django_jobs.stores.sqlite.database.endings import attempt_is_over, holder_is_gone, let_go_of_lost
from django_jobs.stores.sqlite.database.recent import note_recent
from django_jobs.stores.sqlite.database.remembered import note_returned
from django_jobs.stores.sqlite.database.rows import BEGIN, SUSPECT, Row
from django_jobs.stores.sqlite.database.transaction import Transaction
from django_jobs.stores.sqlite.database.unknown import learn_unknown, park
from django_jobs.stores.sqlite.ends import is_waited_for

LOST = "The worker died or lost its lease while it held the job."
_REMOTE = "remote:"
#: ms that a succeeded job with a result stays, whatever HISTORY is, for callers that wait; maximum number of these.
STAYS, MOST_STAYING = 60_000, 100_000


class SqliteSettling(SqlitePart, RunningStore):
    """See stores/contract/running.py for the contract of each method."""

    def renew(
        self, queues: Sequence[str], workers: Sequence[str], lease: int
    ) -> Mapping[str, Mapping[str, Renewal] | StoreError]:
        renewed: dict[str, Mapping[str, Renewal] | StoreError] = {}
        for queue in queues:
            with self.writing(queue) as move:
                renewed[queue] = _renew(move, workers, lease)
        return renewed

    def holdings(self, queue: str, worker: str) -> list[Claim]:
        sql = (
            "SELECT id, queue, token, record, failures, crashes, parked_at, at, holder, lane = 2, since"
            " FROM jobs JOIN records USING (job) WHERE queue = ? AND state = 'running' AND holder = ?"
        )
        with self.database.read() as connection:
            return [Claim(*found) for found in connection.execute(sql, (queue, worker))]

    def complete(self, queue: str, done: Sequence[Done]) -> list[str]:
        if len(done) > MAX_BATCH:
            raise ValueError(f"complete takes at most {MAX_BATCH} jobs a call, not {len(done)}.")
        stale: list[str] = []
        with self.writing(queue) as move:
            waited_for = is_waited_for(move)
            for claim, result, run_ms, _, _, wait_ms in done:
                row = _ended(move, claim)
                if row is None:
                    stale.append(claim.id)
                    continue
                if result:
                    move.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (row.job, result))
                stays = STAYS if waited_for(row.job) or result else None
                kept_until = stays and move.now + stays if row.keep_for is None else move.now + row.keep_for
                move.move(row, State.SUCCEEDED, run_ms=run_ms, kept_until=kept_until)
                move.count("run_ms", n=run_ms)
                move.count("wait_ms", n=wait_ms)
                move.times.append((row.name, wait_ms, run_ms))
            trim_succeeded(move, MAX_BATCH)
        return stale

    def settle(self, queue: str, ended: Sequence[Ended]) -> list[State | None]:
        if len(ended) > MAX_BATCH:
            raise ValueError(f"settle takes at most {MAX_BATCH} jobs a call, not {len(ended)}.")
        states: list[State | None] = []
        with self.writing(queue) as move:
            # Backwards, because each parked job goes before the one that was parked before it.
            for one in reversed(ended):
                row = _ended(move, one.claim)
                states.append(None if row is None else _settle(move, row, one))
        return states[::-1]

    def release(self, queue: str, claims: Sequence[Claim]) -> list[str]:
        stale: list[str] = []
        with self.writing(queue) as move:
            # Backwards, because each goes before the one handled before it.
            for claim in reversed(claims):
                row = _ended(move, claim)
                if row is None:
                    stale.insert(0, claim.id)
                else:
                    _hand_back(move, row, row.expires_at)
        return stale

    def release_worker(self, queue: str, worker: str, *, limit: int = 100) -> list[Recovered]:
        with self.writing(queue) as move:
            rows = move.rows("state = 'running' AND holder = ? ORDER BY at, seq LIMIT ?", worker, limit)
            moved = [_lose(move, row) if row.at_most_once else _hand_back(move, row, None) for row in reversed(rows)]
            if len(rows) < limit:
                holder_is_gone(move, worker)
            return moved[::-1]

    def recover(self, queue: str, *, worker: str | None = None, limit: int = 100) -> list[Recovered]:
        recovered: list[Recovered] = []
        with self.writing(queue) as move:
            for holder in _lost_holders(move) if worker is None else [worker]:
                room = limit - len(recovered)
                if room <= 0:
                    break
                rows = move.rows("state = 'running' AND holder = ? ORDER BY at, seq LIMIT ?", holder, room)
                recovered += reversed([_lose(move, row, whole=worker is None) for row in reversed(rows)])
                if len(rows) < room:
                    holder_is_gone(move, holder)
        return recovered

    def overdue(self, queue: str, limit: int = 100) -> list[Claim]:
        sql = (
            "SELECT id, jobs.queue, token, record, failures, crashes, parked_at, at, jobs.holder, lane = 2, since"
            " FROM leases JOIN jobs ON jobs.queue = leases.queue AND jobs.holder = leases.holder"
            " JOIN records USING (job)"
            " WHERE leases.queue = ? AND leases.until <= ? AND leases.holder >= 'remote:' AND leases.holder < 'remote;'"
            " AND state = 'running' ORDER BY leases.until LIMIT ?"
        )
        with self.database.read() as connection:
            found = connection.execute(sql, (queue, self.now(), limit))
            return [Claim(*columns)._replace(overdue=True) for columns in found]

    def transfer(self, claim: Claim, worker: str, lease: int) -> bool:
        with self.writing(claim.queue) as move:
            row = move.held(claim)
            if row is None:
                return False
            if row.holder != worker:
                move.drop_own_lease(row)
                move.execute("UPDATE jobs SET holder = ? WHERE job = ?", (worker, row.job))
            set_lease(move, worker, lease)
            return True

    def begin(self, claim: Claim) -> bool:
        with self.writing(claim.queue) as move:
            row = move.held(claim)
            if row is not None and row.blocked_by:
                move.execute("UPDATE jobs SET blocked_by = NULL WHERE job = ?", (row.job,))
            return row is not None

    def checkin(self, claim: Claim, checkin: bytes) -> bool:
        with self.writing(claim.queue) as move:
            row = move.held(claim)
            if row is None:
                return False
            said = json.dumps({"at": move.now, **json.loads(checkin)})
            move.execute("UPDATE jobs SET checkin = ? WHERE job = ?", (said, row.job))
            return True


def _renew(move: Transaction, workers: Sequence[str], lease: int) -> dict[str, Renewal]:
    renewed: dict[str, Renewal] = {}
    for worker in workers:
        if not move.value("SELECT 1 FROM leases WHERE queue = ? AND holder = ?", move.queue, worker):
            continue
        set_lease(move, worker, lease)
        asked = [row.id for row in move.rows("state = 'running' AND holder = ? AND stop > 0", worker)]
        killed = move.execute("SELECT id, token FROM endings WHERE queue = ? AND holder = ?", (move.queue, worker))
        asked += [Killed(id, token) for id, token in killed]
        sql = "SELECT token, count(*) FROM jobs WHERE queue = ? AND state = 'running' AND holder = ? GROUP BY token"
        renewed[worker] = Renewal(asked, dict(move.execute(sql, (move.queue, worker)).fetchall()))
    let_go_of_lost(move)
    return renewed


def _settle(move: Transaction, row: Row, ended: Ended) -> State:
    """End one attempt that did not succeed, unless the job waits no more because it was asked to stop."""
    claim, verb, attempt, delay, knows = ended
    failures = row.failures + ended.failures
    if attempt is not None:
        move.log(row, attempt)
    if ended.run_ms >= 0:
        move.times.append((row.name, waited_for(claim), ended.run_ms))
    if ended.failures:
        move.count("failed", row.name)
    if verb == "bury":
        return _to(move, row, State.DEAD, failures=failures)
    if verb == "discard" or row.stop:
        return _to(move, row, State.CANCELLED, failures=failures)
    if verb == "park":
        name = name_line(claim.record)
        learn_unknown(move, knows, name)
        alone = row.alone or row.at_most_once or row.crashes > 0
        lane = SUSPECT if row.crashes and row.lane == SUSPECT else int(alone)
        park(move, row._replace(lane=lane, seq=-move.number()), name)
        return State.BLOCKED
    state = State.RETRY if verb == "retry" else State.SCHEDULED
    if verb == "retry":
        move.count("retried", row.name)
    # Only jobs that have not begun expire.
    return _to(move, row, state, at=move.now + delay, failures=failures, expires_at=None)


def _to(move: Transaction, row: Row, state: State, **changes: Any) -> State:
    move.move(row, state, **changes)
    return state


def _ended(move: Transaction, claim: Claim) -> Row | None:
    """Return the job of a claim whose attempt has ended, if the claim is still held."""
    row = move.held_at_end(claim)
    if row is None:
        if move.held(claim) is None:
            attempt_is_over(move, claim)
    elif claim.report:
        note_recent(move, f"report:{claim.id}", claim.report)
    return row


def trim_succeeded(move: Transaction, limit: int) -> int:
    """Delete the oldest succeeded jobs beyond HISTORY.  A job with a result counts only after it has stayed a
    minute."""
    stayed = "kept_until IS NOT NULL AND keep_for IS NULL"
    waiting = f"SELECT job FROM jobs WHERE queue = ? AND {stayed} AND kept_until <= ? ORDER BY kept_until LIMIT ?"
    free = f"UPDATE jobs SET kept_until = NULL WHERE job IN ({waiting})"
    move.execute(free, (move.queue, move.now, limit))
    if (staying := move.count_of(State.SUCCEEDED, (1,)) - MOST_STAYING) > 0:
        move.execute(free, (move.queue, move.now + STAYS, min(staying, limit)))
    excess = move.count_of(State.SUCCEEDED, (0,)) - move.options.history
    if excess <= 0:
        return 0
    rows = move.rows(
        "state = 'succeeded' AND kept_until IS NULL ORDER BY jobs.at, jobs.job LIMIT ?", min(excess, limit)
    )
    note_returned(move, rows)
    for row in rows:
        move.remove(row, unlock=False)
    return len(rows)


def _hand_back(move: Transaction, row: Row, expires_at: int | None) -> Recovered:
    """Take back a job from a worker that stops."""
    attempt = row.failures + row.crashes + 1
    state = State.CANCELLED if row.stop else State.QUEUED
    if row.stop:
        move.move(row, state)
    else:
        move.requeue(row, expires_at=expires_at)
    times = row.at or 0, move.now, row.since
    return Recovered(row.id, move.record(row), state, row.crashes, row.holder or "", attempt, *times)


def _lose(move: Transaction, row: Row, *, whole: bool = False) -> Recovered:
    """Take a job from a worker that died: only a process of it, or (`whole`) all of it; then its jobs are suspects."""
    is_last, attempt = 0 < row.crashes >= move.options.max_crashes - 1, row.failures + row.crashes + 1
    innocent = not row.at_most_once and (row.blocked_by == BEGIN or (is_last and whole and row.lane != SUSPECT))
    holder, crashes = row.holder or "", row.crashes + (not innocent)
    if not innocent:
        move.log(row, Attempt(attempt, "worker_lost", move.now, worker=holder, error=LOST))
    move.count("recovered")
    if row.at_most_once or (not innocent and crashes >= move.options.max_crashes):
        state = State.DEAD
    elif row.stop:
        state = State.CANCELLED
    else:
        state = State.QUEUED
    if state is State.QUEUED:
        lane = SUSPECT if whole or row.lane == SUSPECT else 1
        move.requeue(row, lane=lane, crashes=crashes, expires_at=None)
    else:
        move.move(row, state, crashes=crashes)
    return Recovered(row.id, move.record(row), state, crashes, holder, attempt, row.at or 0, move.now, row.since)


def _lost_holders(move: Transaction) -> list[str]:
    sql = "SELECT holder FROM leases WHERE queue = ? AND until <= ? ORDER BY until"
    return [holder for (holder,) in move.execute(sql, (move.queue, move.now)) if not holder.startswith(_REMOTE)]
