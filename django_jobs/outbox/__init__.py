"""The outbox: what was enqueued in a transaction, as rows of that transaction, until it is in the store."""

from django_jobs.outbox.entries import (
    Entry,
    EntryKind,
    UnreadableRow,
    age,
    is_waited_for,
    kept_of,
    remove,
    rows,
    unpack,
    write,
    written_at,
)
from django_jobs.outbox.kept import Kept
from django_jobs.outbox.reading import backlog

__all__ = [
    "Entry",
    "EntryKind",
    "Kept",
    "UnreadableRow",
    "age",
    "backlog",
    "is_waited_for",
    "kept_of",
    "remove",
    "rows",
    "unpack",
    "write",
    "written_at",
]
