"""Gives a waiting job other arguments."""

from __future__ import annotations

from django_jobs.core.values import Controls
from django_jobs.stores.sqlite.database.rows import Row
from django_jobs.stores.sqlite.database.transaction import Transaction


def edit(move: Transaction, row: Row, record: bytes, controls: Controls) -> None:
    """Replace the record; the job keeps its place, and its lock and its limit change with the controls."""
    owned = "SELECT until FROM locks WHERE queue = ? AND digest = ? AND id = ?"
    until = move.value(owned, move.queue, row.lock, row.id) or 0
    changed = move.replace_record(row, record, controls)
    if changed.lock and changed.lock != row.lock and (until > move.now or changed.lock_mode != "period"):
        move.lock(changed.lock, row.id, until if until > move.now else 0)
    if row.limit_key and row.limit_key != changed.limit_key:
        move.free(row.limit_key)  # it may have been let in for a slot that it will not use now
        if row.blocked_by == f"limit:{row.limit_key}":
            move.let_in(changed)
