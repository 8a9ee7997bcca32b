"""How much is in the outbox, for pages, metrics and commands; and what it holds of one job or workflow."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import SynchronousOnlyOperation
from django.db.models import Count, Min, Q

from django_jobs.conf import get_settings
from django_jobs.exceptions import PayloadError, StoreUnavailable
from django_jobs.outbox.entries import EntryKind, rows, time_in

Found = TypeVar("Found")


class Backlog(NamedTuple):
    """What waits in the outbox."""

    #: entries that a worker will send.
    waiting: int
    #: entries that somebody must decide about.
    held: int
    #: seconds since the oldest waiting entry was enqueued; 0 without one.
    oldest: float


def backlog() -> Backlog | None:
    """Return how much waits in the outbox; None if OUTBOX is off.  Raises DatabaseError."""
    settings = get_settings()
    if not settings.outbox:
        return None
    found = rows(settings.database).aggregate(
        waiting=Count("id", filter=Q(is_held=False)),
        held=Count("id", filter=Q(is_held=True)),
        oldest=Min("token", filter=Q(is_held=False)),  # as in `written_at`
    )
    oldest = time_in(found["oldest"] or "")
    return Backlog(found["waiting"], found["held"], max(0.0, time() - oldest / 1000) if oldest else 0.0)


def accepted(stored: Callable[[], Found | None], kept: Callable[[], Found | None]) -> Found | None:
    """Return what the store has or, if it has nothing or is away, what the outbox has: it is accepted, too."""
    try:
        found = stored()
    except PayloadError:
        return None  # an id with half of a surrogate pair: nothing has it
    except StoreUnavailable:
        if (found := kept()) is None:
            raise
        return found
    if found is not None or not get_settings().outbox or (found := kept()) is not None:
        return found
    return stored()  # it may have been sent between the two looks


def in_outbox(*ids: str, **wanted: Any) -> str:
    """Return a sentence for an error about jobs that the store does not have: which are still in the outbox, with these
    values; "" if none is.  Raises as `find_row` does."""
    found = [row for id in ids if (row := find_row("data", kind=EntryKind.JOB, key=id, **wanted)) is not None]
    entries = ", ".join(f"{row.key} (entry {row.pk})" for row in found)
    return f" In the outbox, from which a worker sends it: {entries}. See `manage.py jobs outbox`." if found else ""


def find_workflow(id: str, *deferred: str) -> Any:
    """Return the row of a workflow, or the first row of a batch; else as `find_row`."""
    return find_row(*deferred, **({"batch": id} if id.startswith("b") else {"kind": EntryKind.WORKFLOW, "key": id}))


def find_row(*deferred: str, **wanted: Any) -> Any:
    """Return the first row with these values, without the `deferred` columns; None if there is none, or OUTBOX is off.

    Raises DatabaseError, and SynchronousOnlyOperation in async code."""
    settings = get_settings()
    if not settings.outbox or any("\0" in value for value in wanted.values() if isinstance(value, str)):
        return None  # PostgreSQL would refuse a text with NUL
    try:
        return rows(settings.database).filter(**wanted).defer(*deferred).first()
    except SynchronousOnlyOperation:
        raise SynchronousOnlyOperation(
            "The store does not have it, or is away. Whether the outbox has it must be read from the database: in "
            "async code, use the async form of the call (aget_job, aget_workflow, aget_result)."
        ) from None
