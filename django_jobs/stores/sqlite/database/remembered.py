"""Ids that must not be used again, although their job has left the store."""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.core.values import FINISHED, State
from django_jobs.stores.contract.browsing import Remembered
from django_jobs.stores.sqlite.database.lookup import Lookup
from django_jobs.stores.sqlite.database.rows import Row

#: How long (ms) the store knows that a job which left the history returned None, and for how many jobs at most.
TOLD, MOST_RETURNED = 60_000, 100_000


def remember(move: Lookup, id: str, digest: str) -> None:
    """Store an id that the caller gave."""
    move.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?, '', ?)", (move.queue, id, digest, move.now))
    move.remembers = True


def remembered(move: Lookup, id: str) -> Remembered | None:
    """Return the entry of an id."""
    sql = "SELECT digest, state, at FROM remembered WHERE queue = ? AND id = ?"
    found = move.execute(sql, (move.queue, id)).fetchone()
    if found is None or (found[1] and found[2] + move.options.idempotency <= move.now):
        return None
    digest, state, at = found
    return Remembered(digest, State(state) if state else None, at)


def is_remembered(move: Lookup, id: str) -> bool:
    """Tell whether the id must not be used again."""
    known = remembered(move, id) if _any(move) else None
    return known is not None and known.at + move.options.idempotency > move.now


def remember_end(move: Lookup, row: Row) -> None:
    """Note how a job that leaves the store ended."""
    if _any(move):
        state, at = (row.state, row.at) if row.state in FINISHED else (State.CANCELLED, move.now)
        sql = "UPDATE remembered SET state = ?, at = ? WHERE queue = ? AND id = ?"
        move.execute(sql, (state, at or move.now, move.queue, row.id))


def forget_ids(move: Lookup, limit: int) -> int:
    """Delete ids whose time is over.  As long as its job is in the store, an id stays and is checked again later."""
    sql = "SELECT id FROM remembered WHERE queue = ? AND at <= ? ORDER BY at LIMIT ?"
    ids = move.execute(sql, (move.queue, move.now - move.options.idempotency, limit)).fetchall()
    for (id,) in ids:
        if move.row(id) is None:
            move.execute("DELETE FROM remembered WHERE queue = ? AND id = ?", (move.queue, id))
        else:
            move.execute("UPDATE remembered SET at = ? WHERE queue = ? AND id = ?", (move.now, move.queue, id))
    return len(ids)


def note_returned(move: Lookup, rows: Sequence[Row]) -> None:
    """Note which of these succeeded jobs, as they leave the history, returned None and ended within the last minute."""
    for row in rows:
        young = row.at is not None and row.at + TOLD > move.now
        if young and not move.value("SELECT 1 FROM results WHERE job = ?", row.job):
            move.execute("INSERT OR REPLACE INTO returned VALUES (?, ?, ?)", (move.queue, row.id, move.now))


def has_returned_none(move: Lookup, id: str) -> bool:
    """See BrowsingStore."""
    sql = "SELECT 1 FROM returned WHERE queue = ? AND id = ? AND at + ? > ?"
    return bool(move.value(sql, move.queue, id, TOLD, move.now))


def forget_returned(move: Lookup) -> None:
    """Delete the entries that are old enough, and the oldest if there are too many."""
    sql = "SELECT at FROM returned WHERE queue = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
    until = max(move.now - TOLD, move.value(sql, move.queue, MOST_RETURNED) or 0)
    move.execute("DELETE FROM returned WHERE queue = ? AND at <= ?", (move.queue, until))


def _any(move: Lookup) -> bool:
    """Check once per transaction whether the queue has any: most queues have none, and need no further query."""
    if move.remembers is None:
        move.remembers = bool(move.value("SELECT 1 FROM remembered WHERE queue = ? LIMIT 1", move.queue))
    return move.remembers
