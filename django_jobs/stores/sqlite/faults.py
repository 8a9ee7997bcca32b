"""SqliteStore: finds faults without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_jobs.core.values import FINISHED, Faults, State
from django_jobs.stores.contract.running import MAX_BATCH
from django_jobs.stores.contract.upkeep import UpkeepStore
from django_jobs.stores.sqlite.base import SqlitePart

#: greater than any row number.
LAST = 2**63 - 1
_STATES = ", ".join(f"'{state}'" for state in State)
_FINISHED = ", ".join(f"'{state}'" for state in State if state in FINISHED)
#: A job in no known state, or without the time or the blocker that its state needs.
NOWHERE = (
    f"(state NOT IN ({_STATES}) OR state IN ('scheduled', 'retry', 'running', {_FINISHED}) AND at IS NULL"
    " OR state = 'blocked' AND blocked_by IS NULL)"
)
#: A job without its record: there is nothing to run.
EMPTY = "NOT EXISTS (SELECT 1 FROM records WHERE records.job = jobs.job)"
NOT_LEASED = "NOT EXISTS (SELECT 1 FROM leases WHERE leases.queue = jobs.queue AND leases.holder = jobs.holder)"
#: For a lock without an end: its holder neither waits nor runs.
LEFT = (
    "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.queue = locks.queue AND jobs.id = locks.id"
    f" AND state NOT IN ({_FINISHED}))"
)
#: Failed jobs that are not in the index, and entries of the index whose job has left.
MISSING = "NOT EXISTS (SELECT 1 FROM failures WHERE failures.job = jobs.job)"
GONE = (
    "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.job = failures.job AND jobs.state = failures.state"
    " AND jobs.at = failures.at)"
)


class SqliteFaults(SqlitePart, UpkeepStore):
    """See stores/contract/upkeep.py for the contract of the method."""

    def faults(self, queue: str, limit: int = 10_000) -> Faults:
        found: dict[str, list[str]] = {}
        unleased = f"SELECT id, {NOT_LEASED} FROM jobs WHERE queue = ? AND state = 'running' LIMIT ?"
        locks = f"SELECT digest, {LEFT} FROM locks WHERE queue = ? AND until = 0 LIMIT ?"
        rows = self._rows(unleased, queue, limit + 1)
        found["claim_without_lease"] = [id for id, wrong in rows[:limit] if wrong]
        held = self._rows(locks, queue, limit + 1)
        found["lock_without_job"] = [digest for digest, wrong in held[:limit] if wrong]
        missing = f"SELECT id FROM jobs WHERE queue = ? AND state IN ('dead', 'retry') AND {MISSING} LIMIT ?"
        found["failed_without_index"] = [id for (id,) in self._rows(missing, queue, limit)]
        left = f"SELECT job FROM failures WHERE queue = ? AND {GONE} LIMIT ?"
        found["index_without_failed"] = [str(job) for (job,) in self._rows(left, queue, limit)]
        whole, first, seen = len(rows) <= limit and len(held) <= limit, 0, 0
        # With NOT INDEXED, SQLite can only search by row number; otherwise it would walk an index of the whole queue.
        jobs = f"SELECT job, queue = ?, id, {NOWHERE}, {EMPTY} FROM jobs NOT INDEXED WHERE job > ? ORDER BY job LIMIT ?"
        while page := self._rows(jobs, queue, first, MAX_BATCH):
            if seen >= limit:
                whole = False
                break
            first, seen = page[-1][0], seen + len(page)
            for _, ours, id, nowhere, empty in page:
                if ours and (nowhere or empty):
                    found.setdefault("place_without_job" if empty else "job_without_place", []).append(id)
        return Faults({kind: which for kind, which in found.items() if which}, whole)

    def _rows(self, sql: str, *values: str | int) -> Sequence[tuple[Any, ...]]:
        with self.database.read() as connection:
            return connection.execute(sql, values).fetchall()
