"""Ids that must not be used again, though their job has left the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.stores.browsing import Remembered
from django_jobs.stores.sqlite.rows import Row
from django_jobs.values import FINISHED, State

if TYPE_CHECKING:
    from django_jobs.stores.sqlite.transaction import Transaction


def remember(move: Transaction, id: str, digest: str) -> None:
    """The caller gave this id."""
    move.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?, '', ?)", (move.queue, id, digest, move.now))
    move.remembers = True


def remembered(move: Transaction, id: str) -> Remembered | None:
    """What is known of an id."""
    sql = "SELECT digest, state, at FROM remembered WHERE queue = ? AND id = ?"
    found = move.execute(sql, (move.queue, id)).fetchone()
    if found is None or (found[1] and found[2] + move.options.idempotency <= move.now):
        return None
    digest, state, at = found
    return Remembered(digest, State(state) if state else None, at)


def is_remembered(move: Transaction, id: str) -> bool:
    """Must the id not be used again?"""
    known = remembered(move, id) if _any(move) else None
    return known is not None and known.at + move.options.idempotency > move.now


def remember_end(move: Transaction, row: Row) -> None:
    """The job leaves the store."""
    if _any(move):
        state, at = (row.state, row.at) if row.state in FINISHED else (State.CANCELLED, move.now)
        sql = "UPDATE remembered SET state = ?, at = ? WHERE queue = ? AND id = ?"
        move.execute(sql, (state, at or move.now, move.queue, row.id))


def forget_ids(move: Transaction, limit: int) -> int:
    """Those whose time is over.  While its job is here the id is looked at again another time."""
    sql = "SELECT id FROM remembered WHERE queue = ? AND at <= ? ORDER BY at LIMIT ?"
    ids = move.execute(sql, (move.queue, move.now - move.options.idempotency, limit)).fetchall()
    for (id,) in ids:
        if move.row(id) is None:
            move.execute("DELETE FROM remembered WHERE queue = ? AND id = ?", (move.queue, id))
        else:
            move.execute("UPDATE remembered SET at = ? WHERE queue = ? AND id = ?", (move.now, move.queue, id))
    return len(ids)


def _any(move: Transaction) -> bool:
    """Asked once: most queues remember none, and then nothing more is."""
    if move.remembers is None:
        move.remembers = bool(move.value("SELECT 1 FROM remembered WHERE queue = ? LIMIT 1", move.queue))
    return move.remembers
