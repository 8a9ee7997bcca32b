"""Finished jobs in the database, for as long as ARCHIVE["DAYS"] says."""

from django_jobs.archive.rows import (
    BATCH,
    Cursor,
    at,
    find,
    found,
    info_of,
    page,
    prune,
    write,
)

__all__ = [
    "BATCH",
    "Cursor",
    "at",
    "find",
    "found",
    "info_of",
    "page",
    "prune",
    "write",
]
