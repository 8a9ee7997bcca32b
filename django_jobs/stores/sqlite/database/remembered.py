"""Ids that must not be used again, though their job has left the store."""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.core.values import FINISHED, State
from django_jobs.stores.contract.browsing import Remembered
from django_jobs.stores.sqlite.database.lookup import Lookup
from django_jobs.stores.sqlite.database.rows import Row

#: ms for which it is told that a job which has left the history returned None, and of how many at most.
TOLD, MOST_RETURNED = 60_000, 100_000


def remember(move: Lookup, id: str, digest: str) -> None:
    """The caller gave this id."""
    move.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?, '', ?)", (move.queue, id, digest, move.now))
    move.remembers = True


def remembered(move: Lookup, id: str) -> Remembered | None:
    """What is known of an id."""
    sql = "SELECT digest, state, at FROM remembered WHERE queue = ? AND id = ?"
    found = move.execute(sql, (move.queue, id)).fetchone()
    if found is None or (found[1] and found[2] + move.options.idempotency <= move.now):
        return None
    digest, state, at = found
    return Remembered(digest, State(state) if state else None, at)


def is_remembered(move: Lookup, id: str) -> bool:
    """Must the id not be used again?"""
    known = remembered(move, id) if _any(move) else None
    return known is not None and known.at + move.options.idempotency > move.now


def remember_end(move: Lookup, row: Row) -> None:
    """The job leaves the store."""
    if _any(move):
        state, at = (row.state, row.at) if row.state in FINISHED else (State.CANCELLED, move.now)
        sql = "UPDATE remembered SET state = ?, at = ? WHERE queue = ? AND id = ?"
        move.execute(sql, (state, at or move.now, move.queue, row.id))


def forget_ids(move: Lookup, limit: int) -> int:
    """Those whose time is over.  While its job is here the id is looked at again another time."""
    sql = "SELECT id FROM remembered WHERE queue = ? AND at <= ? ORDER BY at LIMIT ?"
    ids = move.execute(sql, (move.queue, move.now - move.options.idempotency, limit)).fetchall()
    for (id,) in ids:
        if move.row(id) is None:
            move.execute("DELETE FROM remembered WHERE queue = ? AND id = ?", (move.queue, id))
        else:
            move.execute("UPDATE remembered SET at = ? WHERE queue = ? AND id = ?", (move.now, move.queue, id))
    return len(ids)


def note_returned(move: Lookup, rows: Sequence[Row]) -> None:
    """These succeeded jobs leave the history: of those of the last minute that returned None, that is remembered."""
    for row in rows:
        young = row.at is not None and row.at + TOLD > move.now
        if young and not move.value("SELECT 1 FROM results WHERE job = ?", row.job):
            move.execute("INSERT OR REPLACE INTO returned VALUES (?, ?, ?)", (move.queue, row.id, move.now))


def has_returned_none(move: Lookup, id: str) -> bool:
    """See BrowsingStore."""
    sql = "SELECT 1 FROM returned WHERE queue = ? AND id = ? AND at + ? > ?"
    return bool(move.value(sql, move.queue, id, TOLD, move.now))


def forget_returned(move: Lookup) -> None:
    """Those that have been told of long enough, and the oldest of too many."""
    sql = "SELECT at FROM returned WHERE queue = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
    until = max(move.now - TOLD, move.value(sql, move.queue, MOST_RETURNED) or 0)
    move.execute("DELETE FROM returned WHERE queue = ? AND at <= ?", (move.queue, until))


def _any(move: Lookup) -> bool:
    """Asked once: most queues remember none, and then nothing more is."""
    if move.remembers is None:
        move.remembers = bool(move.value("SELECT 1 FROM remembered WHERE queue = ? LIMIT 1", move.queue))
    return move.remembers
