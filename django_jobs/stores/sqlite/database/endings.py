"""Attempts that were killed and whose process may still be running them.

Until the process has ended the attempt, or its lease has expired, the attempt keeps its slot, and the job waits if it
is to run again.
"""

from __future__ import annotations

from django_jobs.core.values import Claim
from django_jobs.stores.sqlite.database.rows import Row
from django_jobs.stores.sqlite.database.transaction import Transaction


def keep_slot(move: Transaction, row: Row) -> None:
    """Keep the slot of a running job that is being killed: its holder does not know yet, unless it is gone already."""
    if row.holder and _is_alive(move, row.holder):
        values = (move.queue, row.id, row.holder, row.token, row.limit_key)
        move.execute("INSERT OR REPLACE INTO endings VALUES (?, ?, ?, ?, ?)", values)


def is_ending(move: Transaction, id: str) -> bool:
    """Tell whether the job's last attempt, which was killed, may still be running; if not, free what it held."""
    holder = move.value("SELECT holder FROM endings WHERE queue = ? AND id = ?", move.queue, id)
    if holder is None or _is_alive(move, holder):
        return holder is not None
    _let_go(move, id)
    return False


def attempt_is_over(move: Transaction, claim: Claim) -> None:
    """Handle the end of an attempt whose claim is no longer held: if it was killed, free what it held."""
    sql = "SELECT 1 FROM endings WHERE queue = ? AND id = ? AND token = ?"
    if move.value(sql, move.queue, claim.id, claim.token):
        _let_go(move, claim.id)


def holder_is_gone(move: Transaction, holder: str) -> None:
    """Remove the holder's lease, and free what its killed attempts held."""
    move.execute("DELETE FROM leases WHERE queue = ? AND holder = ?", (move.queue, holder))
    sql = "SELECT id FROM endings WHERE queue = ? AND holder = ?"
    for (id,) in move.execute(sql, (move.queue, holder)).fetchall():
        _let_go(move, id)


def let_go_of_lost(move: Transaction) -> None:
    """Free what killed attempts held if their holder's lease has expired."""
    sql = "SELECT id FROM endings WHERE queue = ?"
    for (id,) in move.execute(sql, (move.queue,)).fetchall():
        is_ending(move, id)


def _is_alive(move: Transaction, holder: str) -> bool:
    until = move.value("SELECT until FROM leases WHERE queue = ? AND holder = ?", move.queue, holder)
    return until is not None and until > move.now


def _let_go(move: Transaction, id: str) -> None:
    sql = "DELETE FROM endings WHERE queue = ? AND id = ? RETURNING holder, limit_key"
    for holder, limit_key in move.execute(sql, (move.queue, id)).fetchall():
        if limit_key:
            move.free(limit_key)
        if holder.endswith(f":{id}"):
            move.execute("DELETE FROM leases WHERE queue = ? AND holder = ?", (move.queue, holder))
    for row in move.rows("state = 'blocked' AND blocked_by = ?", f"ending:{id}"):
        move.let_in(row)
