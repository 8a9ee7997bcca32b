"""The outbox: what was enqueued in a transaction, as rows of that transaction, until it is in the store."""

from django_jobs.outbox.entries import (
    Entry,
    EntryKind,
    Fields,
    NeverAdded,
    UnreadableRow,
    age,
    is_waited_for,
    kept_of,
    never_added,
    remove,
    rows,
    tell_never_added,
    unpack,
    write,
    written_at,
)
from django_jobs.outbox.kept import Kept
from django_jobs.outbox.reading import accepted, backlog, find_row, find_workflow, in_outbox
