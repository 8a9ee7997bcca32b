"""SqliteStore: where one job stands among others."""

from __future__ import annotations

import os

from django_jobs.core.standing import Standing
from django_jobs.core.values import State
from django_jobs.stores.contract.browsing import MOST_AHEAD, MOST_HOLDERS, BrowsingStore
from django_jobs.stores.contract.queues import QueueStore
from django_jobs.stores.sqlite.base import SqlitePart
from django_jobs.stores.sqlite.database.rows import SUSPECT, Row
from django_jobs.stores.sqlite.database.transaction import Transaction

#: What `jobs.blocked_by` begins with.
KINDS = {"limit": "limit", "pause": "pause", "ending": "stop", "unknown": "unknown"}
_AHEAD = (
    "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ? AND state = 'queued' AND lane = ?"
    " AND rank = ? AND seq < ? LIMIT ?)"
)
_HIGHER = (
    "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ? AND state = 'queued' AND lane = ? AND rank < ? LIMIT ?)"
)


class SqliteStanding(SqlitePart, BrowsingStore, QueueStore):
    """See stores/contract/browsing.py and queues.py for the contract of each method."""

    def standing(self, queue: str, id: str, limit_key: str | None = None) -> Standing:
        with self.database.read() as connection:
            view = self.reading(queue, connection)
            row, found = view.row(id), Standing(running=view.count_of(State.RUNNING))
            if limit_key is not None:
                found = found._replace(held=view.running(limit_key), holders=_holders(view, limit_key))
            if row is None:
                return found
            if row.state == State.RUNNING:
                sql = "SELECT until FROM leases WHERE queue = ? AND holder = ?"
                ends = view.value(sql, queue, row.holder) or 0
                return found._replace(state=State.RUNNING, lease_ends=ends)
            if row.state == State.BLOCKED:
                kind = KINDS.get((row.blocked_by or "").partition(":")[0], "limit")
                holder = view.value("SELECT holder FROM endings WHERE queue = ? AND id = ?", queue, id) or ""
                return found._replace(state=State.BLOCKED, blocked_by=kind, stopping=holder)
            return _in_lane(view, row, found) if row.state == State.QUEUED else found

    def refusal(self, queue: str) -> str:
        database = self.database
        if database.in_memory:
            return ""
        folder = os.path.dirname(database.path) or "."
        if not os.access(database.path, os.W_OK) or not os.access(folder, os.W_OK):
            return f"{database.path} may not be written"
        free = os.statvfs(folder)
        return "" if free.f_bavail else f"the disk of {database.path} is full"


def _holders(view: Transaction, limit_key: str) -> tuple[str, ...]:
    sql = (
        "SELECT id FROM jobs WHERE queue = ?1 AND limit_key = ?2 AND state = 'running'"
        " UNION ALL SELECT id FROM endings WHERE queue = ?1 AND limit_key = ?2 LIMIT ?3"
    )
    return tuple(id for (id,) in view.execute(sql, (view.queue, limit_key, MOST_HOLDERS)))


def _in_lane(view: Transaction, row: Row, found: Standing) -> Standing:
    rank = view.value("SELECT rank FROM jobs WHERE job = ?", row.job)
    higher = view.value(_HIGHER, view.queue, row.lane, rank, MOST_AHEAD)
    equal = view.value(_AHEAD, view.queue, row.lane, rank, row.seq, MOST_AHEAD)
    lane = "suspect" if row.lane == SUSPECT else "alone" if row.lane else "shared"
    return found._replace(state=State.QUEUED, lane=lane, ahead=min(higher + equal, MOST_AHEAD), higher=higher)
