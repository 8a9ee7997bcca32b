"""The transitions that all store methods consist of: inside one write transaction, on one queue.

`Transaction.move` is the only place where a job changes its state.  It derives locks, slots, leases, counters and the
archive from the old and the new state, so that no method can forget one of them.

Long because all consequences of a move are in one place.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any

from django_jobs.core.options.declared import MAX_PRIORITY
from django_jobs.core.signature import signature
from django_jobs.core.values import FINISHED, WAITING, Attempt, Controls, State
from django_jobs.serialization.record import name_of, tags_of
from django_jobs.stores.contract.batches import MAX_LOG
from django_jobs.stores.contract.lists import GROUPED
from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.sqlite.database.lookup import Lookup
from django_jobs.stores.sqlite.database.remembered import remember_end
from django_jobs.stores.sqlite.database.rows import SUSPECT, Row, control_columns
from django_jobs.stores.sqlite.database.times import add_times

#: jobs that one call lets in after a limit or a pause is freed.
ADMIT = 100
MINUTE = 60_000
#: The event in `totals` that counts the jobs in `archive`: to count the rows would take as long as there are many.
OUTBOX = "outbox"
_NAMED = frozenset({"enqueued", "succeeded", "failed", "retried", "dead"})
_SERIES = frozenset({"enqueued", "succeeded", "failed", "dead", "run_ms", "wait_ms"})
_TOTALS = _NAMED | {"cancelled", "expired", "recovered", "trimmed_dead", "not_archived"} | {OUTBOX}


class Transaction(Lookup):
    """One transaction on one queue: its methods find and move jobs, and it collects the counters until the end."""

    def __init__(self, connection: sqlite3.Connection, options: StoreOptions, queue: str, now: int) -> None:
        super().__init__(connection, options, queue, now)
        self.events: Counter[str] = Counter()
        self.times: list[tuple[str, int, int]] = []  # of attempts that ended: see add_times
        self._seq = self._stored_seq = -1
        self._freed: set[str] = set()

    def number(self) -> int:
        """Take the queue's next number, for an arrival or a token."""
        if self._seq < 0:
            self.execute("INSERT OR IGNORE INTO queues (queue) VALUES (?)", (self.queue,))
            self._seq = self._stored_seq = self.value("SELECT seq FROM queues WHERE queue = ?", self.queue)
        self._seq += 1
        return self._seq

    # -- moving ----------------------------------------------------------------

    def add(self, id: str, record: bytes, controls: Controls, state: State, at: int | None) -> Row:
        """Add a new job.  `at`: due time, or the end of a finished job; None for queued."""
        seq = self.number()
        columns = {
            "queue": self.queue, "id": id, "name": name_of(record), "state": state, "seq": seq, "at": at,
            "lane": int(controls.alone or controls.at_most_once), "rank": MAX_PRIORITY - controls.priority,
            "since": self.now if at is None else 0, **control_columns(controls),
        }  # fmt: skip
        names = ", ".join(columns)
        cursor = self.execute(
            f"INSERT INTO jobs ({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values())
        )
        self.execute("INSERT INTO records (job, record) VALUES (?, ?)", (cursor.lastrowid, record))
        if state in GROUPED:
            self.index(cursor.lastrowid or 0)
        if controls.workflow is not None:
            step = cursor.lastrowid, controls.workflow, controls.noted_result
            self.execute("INSERT INTO steps VALUES (?, ?, ?)", step)
        row = self.row(id)
        assert row is not None
        return row

    def note_step(self, row: Row, state: str) -> None:
        """Note for the job's workflow, if it has one, what no change of its state tells (see trigger step_moved)."""
        sql = "INSERT INTO notes (queue, workflow, id, state) SELECT ?, workflow, ?, ? FROM steps WHERE job = ?"
        self.execute(sql, (self.queue, row.id, state, row.job))

    def move(self, row: Row, state: State, **changes: Any) -> None:
        """Change the state.  Columns that the new state does not use are cleared, unless `changes` sets them."""
        columns: dict[str, Any] = {"state": state, "at": None, "token": 0, "holder": None, "stop": 0}
        columns |= {"blocked_by": None, "checkin": None} | changes
        if state is State.QUEUED:
            # After a worker that held it has died, a job runs alone until it ends: see lua/lib/ready.lua.
            has_crashed = columns.get("crashes", row.crashes) > 0
            alone = SUSPECT if has_crashed and row.lane == SUSPECT else 1
            columns.setdefault("lane", alone if row.alone or row.at_most_once or has_crashed else 0)
            columns["rank"] = MAX_PRIORITY - row.priority
            columns.setdefault("since", self.now)
            if "seq" not in columns:
                columns["seq"] = self.number()
        elif state in FINISHED:
            columns["at"] = self.now
        self._update(row.job, columns)
        if state in GROUPED:
            self.index(row.job)
        self._follow(row, state)

    def index(self, job: int) -> None:
        """Note by what error the job failed, for the lists of dead jobs and of those that wait for a retry."""
        columns, tables = "queue, state, name, at, ifnull(lines, ''), record", "records USING (job) LEFT JOIN logs"
        sql = f"SELECT {columns} FROM jobs LEFT JOIN {tables} USING (job) WHERE job = ?"
        queue, state, name, at, lines, record = self.execute(sql, (job,)).fetchone()
        last = Attempt(*json.loads(lines.rpartition("\n")[2])) if lines else None
        values = (job, queue, state, name, signature(last), at, min(last.at, self.now) if last else self.now)
        self.execute("DELETE FROM failures WHERE job = ?", (job,))  # and so its tags
        self.execute("INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        for tag in tags_of(record or b""):
            self.execute("INSERT INTO failure_tags VALUES (?, ?, ?, ?, ?, ?)", (queue, state, tag, at, job, values[-1]))

    def requeue(self, row: Row, **changes: Any) -> None:
        """→ queued, before all jobs of its priority."""
        self.move(row, State.QUEUED, seq=-self.number(), **changes)

    def remove(self, row: Row, *, unlock: bool = True) -> None:
        """Delete the job, its log and result, and every lock it holds; without `unlock` (its time is over), locks
        stay."""
        self.execute("DELETE FROM jobs WHERE job = ?", (row.job,))
        remember_end(self, row)
        self._leave(row)
        if unlock:
            self.execute("DELETE FROM locks WHERE queue = ? AND id = ?", (self.queue, row.id))

    def replace_record(self, row: Row, record: bytes, controls: Controls) -> Row:
        """Give a waiting or finished job another record and controls; its place stays."""
        columns = {"name": name_of(record), **control_columns(controls)}
        if row.expires_at is None:  # it has begun, or never had an expiry
            columns["expires_at"] = None
        self._update(row.job, columns)
        self.execute("UPDATE records SET record = ? WHERE job = ?", (record, row.job))
        if row.state in GROUPED:
            self.index(row.job)
        if row.lock and row.lock != controls.unique:
            self.execute("DELETE FROM locks WHERE queue = ? AND digest = ? AND id = ?", (self.queue, row.lock, row.id))
        changed = self.row(row.id)
        assert changed is not None
        return changed

    def _update(self, job: int, columns: dict[str, Any]) -> None:
        names = ", ".join(f"{column} = ?" for column in columns)
        self.execute(f"UPDATE jobs SET {names} WHERE job = ?", (*columns.values(), job))

    def _follow(self, row: Row, state: State) -> None:
        if state is not State.RUNNING:
            self._leave(row)
        if row.lock and row.lock_mode != "period":
            if state in FINISHED or (state is State.RUNNING and row.lock_mode == "queued"):
                self.execute(
                    "DELETE FROM locks WHERE queue = ? AND digest = ? AND id = ? AND until = 0",
                    (self.queue, row.lock, row.id),
                )
            elif row.state not in WAITING and state in WAITING:
                self.lock(row.lock, row.id)
        if state in FINISHED:
            self.count(state, row.name)
            if self.options.archive:
                self._archive(row.job)

    def _leave(self, row: Row) -> None:
        if row.limit_key and row.state in {State.RUNNING, State.QUEUED}:
            # A queued job counts, too: it may have been let in for a slot that it will now not use.
            self.free(row.limit_key)
        if row.state == State.RUNNING:
            self.drop_own_lease(row)

    def drop_own_lease(self, row: Row) -> None:
        """Remove the lease of a holder of this job only; a worker's lease stays, because the worker claims again."""
        kept = "SELECT 1 FROM endings WHERE queue = ? AND id = ?"
        if row.holder and row.holder.endswith(f":{row.id}") and not self.value(kept, self.queue, row.id):
            self.execute("DELETE FROM leases WHERE queue = ? AND holder = ?", (self.queue, row.holder))

    # -- locks -----------------------------------------------------------------

    def locker(self, digest: str) -> Row | str | None:
        """Return the lock's holder: a job, the id of a job that is gone (its period is not over), or None = free."""
        found = self.execute(
            "SELECT id, until FROM locks WHERE queue = ? AND digest = ?", (self.queue, digest)
        ).fetchone()
        if found is None:
            return None
        id, until = found
        row = self.row(id)
        if until:
            return (row or str(id)) if until > self.now else None
        covered = row is not None and State(row.state) not in FINISHED
        if covered and row is not None and row.lock_mode == "queued" and row.state == State.RUNNING:
            covered = False
        return row if covered else None

    def lock(self, digest: str, id: str, until: int = 0) -> bool:
        """Take the lock if it is free, or its holder is no longer covered by it."""
        if self.locker(digest) is not None:
            return False
        self.execute("INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?)", (self.queue, digest, id, until))
        return True

    # -- limits and pauses -----------------------------------------------------

    def running(self, limit_key: str) -> int:
        """Count the used slots of that limit: running jobs, and killed jobs whose process may still run them."""
        n: int = self.value(
            "SELECT (SELECT count(*) FROM jobs WHERE queue = ?1 AND limit_key = ?2 AND state = 'running')"
            " + (SELECT count(*) FROM endings WHERE queue = ?1 AND limit_key = ?2)", self.queue, limit_key,
        )  # fmt: skip
        return n

    def free(self, limit_key: str) -> None:
        """Note that a slot of that limit may be free: jobs that wait for it are let in when this transaction ends."""
        self._freed.add(limit_key)

    def admit(self, limit_key: str) -> int:
        """blocked → queued, as many jobs as there are free slots; they keep their turn."""
        by, admitted = f"limit:{limit_key}", 0
        first = self._blocked(by, 1)
        if first:
            free = first[0].slots - self.running(limit_key) if first[0].slots > 0 else ADMIT
            for row in self._blocked(by, max(free, 0)):
                self.let_in(row)
                admitted += 1
        return admitted

    def admit_type(self, name: str, limit: int = ADMIT) -> int:
        """blocked → queued, for jobs of a type whose pause is over."""
        rows = self._blocked(f"pause:{name}", limit)
        for row in rows:
            self.let_in(row)
        return len(rows)

    def let_in(self, row: Row, **changes: Any) -> None:
        """blocked → queued, at the place that the job had.  It can run from now on."""
        self.move(row, State.QUEUED, lane=row.lane, seq=row.seq, **changes)

    def opened(self) -> int:
        """Return when the last pause of the queue ended (ms); 0 = never, or it has not ended."""
        sql = "SELECT until FROM pauses WHERE queue = ? AND name = '' AND until > 0 AND until <= ?"
        return self.value(sql, self.queue, self.now) or 0

    def _blocked(self, by: str, limit: int) -> list[Row]:
        return self.rows("state = 'blocked' AND blocked_by = ? ORDER BY rank, seq LIMIT ?", by, limit)

    def pauses(self) -> dict[str, tuple[str, int, int]]:
        """Return the pauses in force: "" (the queue) or job name → reason, until, since."""
        sql = "SELECT name, reason, until, since FROM pauses WHERE queue = ? AND (until = 0 OR until > ?)"
        found = self.execute(sql, (self.queue, self.now))
        return {name: (reason, until, since) for name, reason, until, since in found}

    # -- logs, counters, archive -------------------------------------------------

    def log(self, row: Row, attempt: Attempt) -> None:
        """Append to the job's attempts log; the time is the store's."""
        lines = self.value("SELECT lines FROM logs WHERE job = ?", row.job)
        kept = lines.split("\n")[1 - MAX_LOG :] if lines else []
        kept.append(json.dumps(attempt._replace(at=self.now), separators=(",", ":")))
        self.execute("INSERT OR REPLACE INTO logs VALUES (?, ?)", (row.job, "\n".join(kept)))

    def count(self, event: str, name: str = "", n: int = 1) -> None:
        """Add to the totals and to the series of minutes."""
        self.events[event] += n
        if name and event in _NAMED:
            self.events[f"{event}:{name}"] += n

    def _archive(self, job: int) -> None:
        if self._outbox_is_full():
            self.count("not_archived")
            return
        self.count(OUTBOX)
        self.execute(
            "INSERT INTO archive (queue, id, record, state, failures, crashes, at, result, run_ms, lines)"
            " SELECT queue, id, record, state, failures, crashes, at, result, run_ms, ifnull(lines, '')"
            " FROM jobs JOIN records USING (job) LEFT JOIN results USING (job) LEFT JOIN logs USING (job)"
            " WHERE job = ?",
            (job,),
        )

    def _outbox_is_full(self) -> bool:
        stored = self.value("SELECT n FROM totals WHERE queue = ? AND event = ?", self.queue, OUTBOX) or 0
        return bool(stored + self.events[OUTBOX] >= self.options.backlog)

    def finish(self) -> None:
        """Write the changes that were postponed to the end: admissions and counters."""
        for key in self._freed:
            self.admit(key)
        if self._seq != self._stored_seq:
            self.execute("UPDATE queues SET seq = ? WHERE queue = ?", (self._seq, self.queue))
        add_times(self, self.times)
        minute = self.now - self.now % MINUTE
        for event, n in self.events.items():
            base = event.partition(":")[0]
            if base in _TOTALS:
                self.execute(
                    "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
                    (self.queue, event, n),
                )
            if event in _SERIES:
                self.execute(
                    "INSERT INTO minutes VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
                    (self.queue, minute, event, n),
                )
