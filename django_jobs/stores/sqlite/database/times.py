"""How long the attempts of each job type waited and ran: a row of numbers in table `times` (core/times.py)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from django_jobs.core.times import MOST_NAMES, OTHER, Times, added, read_slots, slots_of
from django_jobs.stores.sqlite.database.lookup import Lookup

_FIND = "SELECT slots FROM times WHERE queue = ? AND name = ?"


def add_times(move: Lookup, ends: Iterable[tuple[str, int, int]]) -> None:
    """Count attempts that ended: job type, ms waited, ms run."""
    for name, numbers in slots_of(ends).items():
        old = move.value(_FIND, move.queue, name)
        if old is None and move.value("SELECT count(*) FROM times WHERE queue = ?", move.queue) >= MOST_NAMES:
            name = OTHER
            old = move.value(_FIND, move.queue, name)
        text = " ".join(map(str, added(list(map(int, old.split())) if old else [], numbers)))
        move.execute("INSERT OR REPLACE INTO times VALUES (?, ?, ?)", (move.queue, name, text))


def read_times(connection: sqlite3.Connection, queues: Sequence[str]) -> dict[str, dict[str, Times]]:
    """Return queue → job type → times."""
    found: dict[str, dict[str, Times]] = {queue: {} for queue in queues}
    for queue, name, slots in connection.execute("SELECT queue, name, slots FROM times"):
        if queue in found:
            found[queue][name] = read_slots(list(map(int, slots.split())))
    return found
