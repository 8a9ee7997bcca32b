"""Entries in the outbox.  In the transaction of a test, whatever is enqueued with OUTBOX stays there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_jobs.enqueueing.handle import JobHandle
from django_jobs.outbox import rows

OLD = timedelta(days=2)


def ids() -> list[int]:
    """The ids of all entries."""
    return list(rows("default").values_list("pk", flat=True))


def held() -> list[int]:
    return list(rows("default").filter(is_held=True).values_list("pk", flat=True))


def entry(handle: JobHandle, *, reason: str = "", age: timedelta = timedelta()) -> int:
    """Return the id of the entry of a job, which is held if there is a reason, and of this age."""
    found = rows("default").filter(key=handle.id)
    then = timezone.now() - age
    changes: dict[str, Any] = {"is_held": bool(reason), "reason": reason, "created": then, "fresh_at": then}
    old = f"{round(then.timestamp() * 1000):012x}"  # the token begins with the time, too
    found.update(**changes, token=old + found.get().token[12:])
    pk: int = found.get().pk
    return pk
