"""SqliteStore: pruning, repairs, and jobs for the archiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_jobs.core.values import JobInfo, State
from django_jobs.stores.contract.archive import ArchiveStore
from django_jobs.stores.contract.batches import MAX_BYTES
from django_jobs.stores.contract.running import MAX_BATCH
from django_jobs.stores.contract.upkeep import MISPLACED, UpkeepStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.browsing import attempts_of, shown_result
from django_jobs.stores.sqlite.database.endings import holder_is_gone
from django_jobs.stores.sqlite.database.recent import forget_recent
from django_jobs.stores.sqlite.database.remembered import forget_ids, forget_returned
from django_jobs.stores.sqlite.database.rows import COLUMNS, Row
from django_jobs.stores.sqlite.database.samples import add_sample, is_due
from django_jobs.stores.sqlite.database.transaction import OUTBOX, Transaction
from django_jobs.stores.sqlite.faults import EMPTY, GONE, LAST, LEFT, MISSING, NOWHERE
from django_jobs.stores.sqlite.settling import MOST_STAYING, STAYS, trim_succeeded

#: how far back the series of minutes goes, ms.
_SERIES_KEPT = 25 * 3_600_000
#: Limits whose waiting jobs are checked in one step.
_LIMITS = 100


_WAITING = "SELECT 1 FROM archive WHERE queue = ? LIMIT 1"
_TAKE_TURN = (
    "INSERT INTO archivers VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET archiver = excluded.archiver, until = excluded.until"
    " WHERE archiver = excluded.archiver OR until <= ?"
)


class SqliteRepairing(SqlitePart, UpkeepStore, ArchiveStore):
    """See stores/contract/upkeep.py and archive.py for the contract of each method."""

    #: queue → the last job, the last limit with waiting jobs and the last lock that a round of repairs has checked.
    _round: dict[str, int]
    _waited: dict[str, str]
    _locked: dict[str, str]

    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        options, forgotten = self.options, {}
        with self.writing(queue) as move:
            # Jobs that keep_result has kept long enough go first, even if HISTORY would still keep them.
            kept = _forget(
                move, "kept_until <= ? AND keep_for IS NOT NULL ORDER BY kept_until LIMIT ?", move.now, limit
            )
            old = _forget_old(move, State.SUCCEEDED, options.history_ttl, limit - kept, "AND kept_until IS NULL")
            forgotten[State.SUCCEEDED.value] = kept + old + trim_succeeded(move, limit - kept - old)
            for state, most, ttl in (
                (State.CANCELLED, options.history, options.history_ttl),
                (State.EXPIRED, options.history, options.history_ttl),
                (State.DEAD, options.dead, options.dead_ttl),
            ):
                n = _forget_old(move, state, ttl, limit)
                excess = move.count_of(state) - most
                if excess > 0:
                    # A caller that waits for the end can read the job for a minute.
                    before = move.now + 1 if excess > MOST_STAYING else move.now - STAYS
                    where = f"state = '{state}' AND at < ? ORDER BY jobs.at, jobs.job LIMIT ?"
                    n += _forget(move, where, before, min(limit - n, excess))
                forgotten[state.value] = n
            if forgotten[State.DEAD.value]:
                move.count("trimmed_dead", n=forgotten[State.DEAD.value])
            forgotten["remembered"] = forget_ids(move, limit)
            forget_returned(move)
            forget_recent(move)
            move.execute("DELETE FROM waiters WHERE until <= ?", (move.now,))
            move.execute("DELETE FROM minutes WHERE queue = ? AND minute < ?", (queue, move.now - _SERIES_KEPT))
            move.execute("DELETE FROM locks WHERE queue = ? AND until > 0 AND until <= ?", (queue, move.now))
        return forgotten

    def sample(self, queues: Sequence[str]) -> None:
        now = self.now()
        with self.database.read() as connection:
            due = [queue for queue in queues if is_due(connection, queue, now)]
        for queue in due:
            with self.database.write() as connection:
                add_sample(connection, queue, now)

    def reconcile(
        self, queue: str, limit: int = MAX_BATCH, *, buried: list[tuple[str, bytes]] | None = None
    ) -> dict[str, int]:
        with self.writing(queue) as move:
            window = self._next_window(move, limit)
            return {
                "claim_without_lease": _lease_claims(move, limit),
                "lease_without_claim": _drop_leases(move, limit),
                "job_without_place": _place_jobs(move, window, [] if buried is None else buried),
                "place_without_job": _drop_orphans(move, window),
                "lock_without_job": self._drop_locks(move, limit),
                # A slot is a running job in this store, and a table has one type: neither can be wrong.
                "slot_without_claim": 0,
                # A trigger deletes what belongs to a record along with the job.
                "entry_without_job": 0,
                "waiter_without_limit": self._admit_waiters(move, min(limit, _LIMITS)),
                "wrong_type": 0,
                **_index(move, limit),
            }

    def _next_window(self, move: Transaction, limit: int) -> tuple[int, int]:
        """Return the next `limit` jobs of a round through all jobs: one step must not hold up the writers."""
        first = self._round.get(move.queue, 0)
        last = move.value("SELECT job FROM jobs WHERE job > ? ORDER BY job LIMIT 1 OFFSET ?", first, limit - 1)
        self._round[move.queue] = last or 0
        return first, LAST if last is None else last

    def _drop_locks(self, move: Transaction, limit: int) -> int:
        """Check the next `limit` locks, in the order of their digests."""
        after = self._locked.get(move.queue, "")
        last = move.value(
            "SELECT digest FROM locks WHERE queue = ? AND digest > ? ORDER BY digest LIMIT 1 OFFSET ?",
            *(move.queue, after, limit - 1),
        )
        self._locked[move.queue] = last or ""
        sql = (
            f"DELETE FROM locks WHERE queue = ? AND digest > ? AND (? IS NULL OR digest <= ?) AND until = 0 AND {LEFT}"
        )
        return move.execute(sql, (move.queue, after, last, last)).rowcount

    def _admit_waiters(self, move: Transaction, limit: int) -> int:
        sql = (
            "SELECT DISTINCT blocked_by FROM jobs WHERE queue = ? AND state = 'blocked'"
            " AND blocked_by > ? AND blocked_by < 'limit;' ORDER BY blocked_by LIMIT ?"
        )
        after = self._waited.get(move.queue, "limit:")
        waited = [by for (by,) in move.execute(sql, (move.queue, after, limit))]
        self._waited[move.queue] = waited[-1] if len(waited) == limit else "limit:"
        return sum(move.admit(by.removeprefix("limit:")) for by in waited)

    def archive_turns(self, queues: Sequence[str], archiver: str, lease: int) -> list[str]:
        now = self.now()
        with self.database.read() as connection:
            waiting = [queue for queue in queues if connection.execute(_WAITING, (queue,)).fetchone()]
        if not waiting:
            return []
        with self.database.write() as connection:
            taken = [connection.execute(_TAKE_TURN, (queue, archiver, now + lease, now)).rowcount for queue in waiting]
        return [queue for queue, mine in zip(waiting, taken, strict=True) if mine]

    def archive_leave(self, queues: Sequence[str], archiver: str) -> None:
        with self.database.write() as connection:
            connection.executemany(
                "DELETE FROM archivers WHERE queue = ? AND archiver = ?", [(queue, archiver) for queue in queues]
            )

    def archive_batch(self, queue: str, limit: int = MAX_BATCH, skip: int = 0) -> list[tuple[int | str, JobInfo]]:
        sql = (
            "SELECT key, id, queue, record, state, failures, crashes, at, result, run_ms, lines"
            " FROM archive WHERE queue = ? ORDER BY key LIMIT ? OFFSET ?"
        )
        with self.database.read() as connection:
            found: list[tuple[Any, ...]] = []
            size = 0
            for columns in connection.execute(sql, (queue, limit, skip)):
                found.append(columns)
                size += len(columns[3]) + len(columns[8] or b"") + len(columns[10])
                if size >= MAX_BYTES:
                    break
        return [(key, _archived(*columns)) for key, *columns in found]

    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        if keys:
            # A key is never used twice, and the queue has no other entry between two of a batch.
            with self.database.write() as connection:
                sql = "DELETE FROM archive WHERE queue = ? AND key BETWEEN ? AND ?"
                removed = connection.execute(sql, (queue, int(keys[0]), int(keys[-1]))).rowcount
                connection.execute(
                    "UPDATE totals SET n = n - ? WHERE queue = ? AND event = ?", (removed, queue, OUTBOX)
                )


def _index(move: Transaction, limit: int) -> dict[str, int]:
    """If the numbers differ, add failed jobs that are not in the index, and remove entries without a job."""
    added = removed = 0
    known = move.value("SELECT count(*) FROM failures WHERE queue = ?", move.queue)
    if known != move.count_of(State.DEAD) + move.count_of(State.RETRY):
        removed = move.execute(f"DELETE FROM failures WHERE queue = ? AND {GONE}", (move.queue,)).rowcount
        failed = f"state IN ('dead', 'retry') AND at IS NOT NULL AND {MISSING}"
        sql = f"SELECT job FROM jobs WHERE queue = ? AND {failed} LIMIT ?"
        found = move.execute(sql, (move.queue, limit)).fetchall()
        for (job,) in found:
            move.index(job)
        added = len(found)
    return {"failed_without_index": added, "index_without_failed": removed}


def _archived(
    id: str, queue: str, record: bytes, state: str, failures: int, crashes: int, at: int, result: bytes | None,
    run_ms: int, lines: str,
) -> JobInfo:  # fmt: skip
    log, result = attempts_of(lines), shown_result(result, run_ms)
    return JobInfo(id, queue, record, State(state), failures, crashes, at, result=result, run_ms=run_ms, attempts=log)


def _forget(move: Transaction, where: str, *values: int) -> int:
    rows = move.rows(where, *values)
    for row in rows:
        move.remove(row, unlock=False)
    return len(rows)


def _forget_old(move: Transaction, state: State, ttl: int, limit: int, but: str = "") -> int:
    where = f"state = '{state}' AND at < ? {but} ORDER BY jobs.at, jobs.job LIMIT ?"
    return _forget(move, where, move.now - ttl, max(limit, 0))


def _lease_claims(move: Transaction, limit: int) -> int:
    """Give a holder without a lease an expired one, so that recover takes its jobs."""
    sql = (
        "INSERT INTO leases SELECT DISTINCT queue, holder, ? FROM jobs WHERE queue = ? AND state = 'running'"
        " AND holder NOT IN (SELECT holder FROM leases WHERE queue = ?) LIMIT ?"
    )
    return move.execute(sql, (move.now, move.queue, move.queue, limit)).rowcount


def _drop_leases(move: Transaction, limit: int) -> int:
    sql = (
        "SELECT holder FROM leases WHERE queue = ? AND until <= ? AND NOT EXISTS (SELECT 1 FROM jobs"
        " WHERE jobs.queue = leases.queue AND jobs.holder = leases.holder AND state = 'running') LIMIT ?"
    )
    holders = move.execute(sql, (move.queue, move.now, limit)).fetchall()
    for (holder,) in holders:
        holder_is_gone(move, holder)
    return len(holders)


def _in_window(move: Transaction, window: tuple[int, int], where: str) -> list[Row]:
    # With NOT INDEXED, SQLite can only search by row number; otherwise it would walk an index of the whole queue.
    sql = f"SELECT {COLUMNS} FROM jobs NOT INDEXED WHERE job > ? AND job <= ? AND queue = ? AND {where}"
    return [Row._make(found) for found in move.execute(sql, (*window, move.queue))]


def _place_jobs(move: Transaction, window: tuple[int, int], buried: list[tuple[str, bytes]]) -> int:
    """Queue jobs in no place, because they were accepted; one that may have run and must not run twice is dead."""
    rows = _in_window(move, window, NOWHERE)
    for row in rows:
        if row.at_most_once:
            move.log(row, MISPLACED)
            move.move(row, State.DEAD)
            record = move.value("SELECT record FROM records WHERE job = ?", row.job)
            buried.append((row.id, record or b""))
        else:
            move.move(row, State.QUEUED)
    return len(rows)


def _drop_orphans(move: Transaction, window: tuple[int, int]) -> int:
    rows = _in_window(move, window, EMPTY)
    for row in rows:
        move.remove(row)
    return len(rows)
