"""SqliteStore: jobs that wait for a worker that knows their name; they are blocked by "unknown:<name>".

The names that workers do not know are in table `documents`, key "unknown:<queue>", one entry "<digest> <name>"
each.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_jobs.core.values import State
from django_jobs.stores.sqlite.database.rows import Row
from django_jobs.stores.sqlite.database.transaction import Transaction

_BY = "unknown:"
#: ms: learning a forgotten name again costs one claim.
_FORGET = 86_400_000


def unknown_to(move: Transaction, knows: str) -> frozenset[str]:
    """Return the names that workers of that digest are known not to know."""
    if not knows:
        return frozenset()
    sql = "SELECT entry FROM documents WHERE key = ? AND entry >= ? AND entry < ?"
    found = move.execute(sql, (_BY + move.queue, f"{knows} ", f"{knows}!"))
    return frozenset(entry[len(knows) + 1 :] for (entry,) in found)


def learn_unknown(move: Transaction, knows: str, name: str) -> None:
    """Note that workers of that digest do not know the name."""
    key = _BY + move.queue
    move.execute("DELETE FROM documents WHERE key = ? AND value < ?", (key, f"{move.now - _FORGET:015d}"))
    move.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (key, f"{knows} {name}", f"{move.now:015d}"))


def park(move: Transaction, row: Row, name: str) -> None:
    """→ blocked, at the place that the job has."""
    kept = {"lane": row.lane, "seq": row.seq, "parked_at": row.parked_at or move.now}
    move.move(row, State.BLOCKED, blocked_by=_BY + name, **kept)


def admit_known(move: Transaction, lanes: Sequence[int], hidden: frozenset[str], limit: int) -> None:
    """blocked → queued, at most `limit` jobs of a lane whose names are not hidden."""
    for by in parked(move):
        if limit <= 0:
            return
        if by.removeprefix(_BY) in hidden:
            continue
        where = "state = 'blocked' AND blocked_by = ? AND lane BETWEEN ? AND ? ORDER BY rank, seq LIMIT ?"
        rows = move.rows(where, by, min(lanes), max(lanes), limit)
        for row in rows:
            move.let_in(row, parked_at=0)
        limit -= len(rows)


def parked(move: Transaction) -> list[str]:
    """Return the blockers of parked jobs, each once: one index look-up per name, however many jobs wait."""
    found, by = list[str](), _BY
    if move.count_of(State.BLOCKED):
        sql = (
            "SELECT blocked_by FROM jobs WHERE queue = ? AND state = 'blocked'"
            " AND blocked_by > ? AND blocked_by < 'unknown;' ORDER BY blocked_by LIMIT 1"
        )
        while (by := move.value(sql, move.queue, by)) is not None:
            found.append(by)
    return found


def is_parked(move: Transaction, lanes: Sequence[int]) -> bool:
    """Tell whether any parked job waits in that lane."""
    sql = (
        "SELECT 1 FROM jobs WHERE queue = ? AND state = 'blocked'"
        " AND blocked_by > 'unknown:' AND blocked_by < 'unknown;' AND lane BETWEEN ? AND ? LIMIT 1"
    )
    return bool(move.count_of(State.BLOCKED)) and move.value(sql, move.queue, min(lanes), max(lanes)) is not None


def unknown_to_whom(move: Transaction, name: str) -> frozenset[str]:
    """Return the digests of workers that are known not to know the name."""
    found = move.execute("SELECT entry FROM documents WHERE key = ?", (_BY + move.queue,))
    return frozenset(digest for digest, _, of in (entry.partition(" ") for (entry,) in found) if of == name)
