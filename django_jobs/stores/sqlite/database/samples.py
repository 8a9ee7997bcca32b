"""Samples of the totals of each queue, in table `samples`: the fields that samples/log.py describes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from django_jobs.samples.log import COARSE, FINE, KEPT, fields_of, take, taken_at

_KEEP = "INSERT OR REPLACE INTO samples VALUES (?, ?, ?)"


def totals_of(connection: sqlite3.Connection, queue: str) -> Mapping[str, int]:
    """Return event, or event and job type → how often it happened."""
    return dict(connection.execute("SELECT event, n FROM totals WHERE queue = ?", (queue,)).fetchall())


def text_of(connection: sqlite3.Connection, queue: str, field: str) -> str:
    """Return one field; "" if there is none."""
    found = connection.execute("SELECT text FROM samples WHERE queue = ? AND field = ?", (queue, field)).fetchone()
    return str(found[0]) if found else ""


def is_due(connection: sqlite3.Connection, queue: str, now: int) -> bool:
    """Tell whether no sample was taken in these five minutes."""
    taken = taken_at(text_of(connection, queue, "taken"))
    return not taken or taken // FINE != now // FINE


def add_sample(connection: sqlite3.Connection, queue: str, now: int) -> None:
    """Take a sample, unless that of these five minutes has been taken.  Delete those of queues without new ones."""
    names = ["taken", *(field for width in KEPT for field in fields_of(width))]
    stored = {name: text_of(connection, queue, name) for name in names}
    changes = take(stored, totals_of(connection, queue), now)
    connection.executemany(_KEEP, [(queue, field, text) for field, text in changes.items()])
    old = "SELECT queue FROM samples WHERE field = 'taken' AND CAST(text AS INTEGER) < ?"
    connection.execute(f"DELETE FROM samples WHERE queue IN ({old})", (now - KEPT[COARSE],))
