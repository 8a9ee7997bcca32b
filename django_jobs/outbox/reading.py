"""How much is in the outbox, for pages, metrics and commands."""

from __future__ import annotations

from time import time
from typing import NamedTuple

from django.db.models import Count, Min, Q

from django_jobs.conf import get_settings
from django_jobs.outbox.entries import rows, time_in


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
