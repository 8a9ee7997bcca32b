"""Finished jobs in the database, for as long as ARCHIVE["DAYS"] says."""

from django_jobs.archive.rows import (
    Cursor,
    at,
    at_many,
    find,
    found,
    info_of,
    page,
    prune,
    with_tag,
)
from django_jobs.archive.writing import BATCH, Rows, prepare, write, write_rows

__all__ = [
    "BATCH",
    "Cursor",
    "Rows",
    "at",
    "at_many",
    "find",
    "found",
    "info_of",
    "page",
    "prepare",
    "prune",
    "with_tag",
    "write",
    "write_rows",
]
