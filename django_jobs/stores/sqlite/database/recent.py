"""The effects of the last calls of remote workers, so that a call that is sent again gets the same answer.

In table `documents`, key "recent:<queue>": one entry for each call, with the time (ms) in front of its value.
"""

from __future__ import annotations

from django_jobs.stores.sqlite.database.lookup import Lookup

#: ms
KEPT = 900_000


def note_recent(move: Lookup, entry: str, value: str) -> None:
    """Keep the answer of a call."""
    values = (f"recent:{move.queue}", entry, f"{move.now:015d}:{value}")
    move.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", values)


def find_recent(move: Lookup, entry: str) -> str:
    """Return the kept answer of a call, or ""."""
    sql = "SELECT value FROM documents WHERE key = ? AND entry = ? AND value >= ?"
    found: str = move.value(sql, f"recent:{move.queue}", entry, f"{move.now - KEPT:015d}") or ""
    return found.partition(":")[2]


def forget_recent(move: Lookup) -> None:
    """Delete the answers that are old enough."""
    values = (f"recent:{move.queue}", f"{move.now - KEPT:015d}")
    move.execute("DELETE FROM documents WHERE key = ? AND value < ?", values)
