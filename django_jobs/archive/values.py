"""A finished job → the values of its columns, whatever is in its record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from django_jobs.core.attempt import LINE, packed
from django_jobs.core.values import JobInfo
from django_jobs.serialization.record import enqueued_ms, name_of
from django_jobs.serialization.results import without_worker, worker_of

#: The highest values of the two kinds of number columns.
_MOST, _MOST_MS = 2**31 - 1, 2**63 - 1


def columns_of(info: JobInfo) -> dict[str, Any]:
    """Return column → value, in the order of the columns.  All values fit, whatever is in the record."""
    last = info.attempts[-1] if info.attempts else None
    result = info.result or b""
    return {
        "job_id": text(info.id, 255),
        "queue": text(info.queue, 128),
        "name": text(name_of(info.record), 255),
        "status": info.state.value,
        "record": info.record,
        "result": text(without_worker(result).decode(errors="replace")),
        "failures": min(info.failures, _MOST),
        "crashes": min(info.crashes, _MOST),
        "log": text(json.dumps([packed(each)[: len(LINE)] for each in info.attempts])) if info.attempts else "",
        "error_type": text(last.error_type, 255) if last else "",
        "error": text(last.error) if last else "",
        "worker": text(info.worker or worker_of(result) or (last.worker if last else ""), 255),
        "run_ms": min(info.run_ms, _MOST_MS),
        "enqueued_at": moment(enqueued_ms(info.record, 0)),
        "ended_at": moment(info.at) or timezone.now(),
    }


def as_stored(value: datetime) -> datetime:
    """Return a time as the database needs it: without a zone if the project sets USE_TZ = False."""
    if timezone.is_aware(timezone.now()):
        return value
    return timezone.make_naive(value, timezone.get_default_timezone())


def text(value: str, limit: int | None = None) -> str:
    """Return text that a database accepts: PostgreSQL refuses NUL, and no driver encodes half a surrogate pair."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.replace("\x00", "\ufffd")[:limit]


def moment(ms: int) -> datetime | None:
    """Return a stored time, or None for 0 and for times that no calendar can represent."""
    try:
        return as_stored(datetime.fromtimestamp(ms / 1000, UTC)) if ms > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
