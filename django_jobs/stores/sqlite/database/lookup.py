"""Finding jobs inside one transaction, on one queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from django_jobs.core.values import Claim, State
from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.sqlite.database.rows import COLUMNS, SUSPECT, Row


class Lookup:
    """Reads within a transaction that the caller has begun."""

    def __init__(self, connection: sqlite3.Connection, options: StoreOptions, queue: str, now: int) -> None:
        """`now`: ms, the store's clock for the whole transaction."""
        self.execute = connection.execute
        self.options, self.queue, self.now = options, queue, now
        #: does the queue remember any ids?  None: not asked yet (see remembered.py).
        self.remembers: bool | None = None

    def row(self, id: str) -> Row | None:
        """Return the job with that id."""
        found = self.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ? AND queue = ?", (id, self.queue)).fetchone()
        return found and Row._make(found)

    def held(self, claim: Claim) -> Row | None:
        """Return the job of that claim, if the claim is still held."""
        row = self.row(claim.id)
        return row if row is not None and row.state == State.RUNNING and row.token == claim.token else None

    def held_at_end(self, claim: Claim) -> Row | None:
        """Return the same for a call that ends the attempt: an overdue one only if it has not been extended."""
        row = self.held(claim)
        if row is not None and claim.overdue:
            sql = "SELECT 1 FROM leases WHERE queue = ? AND holder = ? AND until > ?"
            return None if self.value(sql, self.queue, row.holder, self.now) else row
        return row

    def record(self, row: Row) -> bytes:
        """Return the bytes of the job's record."""
        found: bytes = self.value("SELECT record FROM records WHERE job = ?", row.job)
        return found

    def rows(self, where: str, *values: Any) -> list[Row]:
        """Return jobs of this queue; `where` begins after the AND."""
        sql = f"SELECT {COLUMNS} FROM jobs WHERE jobs.queue = ? AND {where}"
        return [Row._make(found) for found in self.execute(sql, (self.queue, *values))]

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        found = self.execute(sql, values).fetchone()
        return found and found[0]

    def count_of(self, state: State, parts: Sequence[int] = (0, SUSPECT)) -> int:
        """Count the jobs in that state (for queued: in these neighbouring lanes)."""
        n = self.value(
            "SELECT sum(n) FROM counts WHERE queue = ? AND state = ? AND part BETWEEN ? AND ?",
            *(self.queue, state, min(parts), max(parts)),
        )
        return n or 0
