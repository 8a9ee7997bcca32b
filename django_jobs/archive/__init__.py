"""Finished jobs in the database, for as long as ARCHIVE["DAYS"] says."""

from django_jobs.archive.rows import (
    Cursor,
    Searched,
    chosen,
    find,
    found,
    found_many,
    info_of,
    page,
    prune,
    search,
    with_tag,
)
from django_jobs.archive.writing import BATCH, Rows, prepare, write, write_rows
