"""Finished jobs in the database: JobInfo → row when they end, row → JobInfo when they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import router, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from django_jobs.archive.models import ArchivedJob
from django_jobs.core.values import Attempt, JobInfo, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.record import decode, name_of
from django_jobs.serialization.results import without_worker, worker_of

#: Rows per INSERT or DELETE: transactions stay short, and below every database's limit of variables.
BATCH = 500
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Cursor(NamedTuple):
    """A position in the history: where the last page ended."""

    ended_at: datetime
    pk: int

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read what str() wrote.  Raises ValueError."""
        moment, _, pk = text.partition("_")
        if not re.fullmatch(r"\d{1,17}_\d{1,18}", text):
            raise ValueError(f"{text!r:.50} is no cursor.")
        return cls(as_stored(EPOCH + timedelta(microseconds=int(moment))), int(pk))

    def __str__(self) -> str:
        return f"{(as_aware(self.ended_at) - EPOCH) // timedelta(microseconds=1)}_{self.pk}"


def write(infos: Sequence[JobInfo]) -> int:
    """Write finished jobs.  Keeps existing rows, unless the job ended again later.  Returns the number of new rows."""
    latest = {(info.queue, info.id): row_of(info) for info in sorted(infos, key=lambda info: info.at)}
    written = 0
    rows = list(latest.values())
    for start in range(0, len(rows), BATCH):
        # Rows written a moment ago must be visible, so never read from a replica.
        alias = router.db_for_write(ArchivedJob)
        with transaction.atomic(using=alias):
            written += _write_batch(ArchivedJob.objects.using(alias), rows[start : start + BATCH])
    return written


def _write_batch(table: QuerySet[ArchivedJob], rows: list[ArchivedJob]) -> int:
    wanted = {(row.queue, row.job_id): row for row in rows}
    found = table.filter(queue__in={row.queue for row in rows}, job_id__in=[row.job_id for row in rows]).values_list(
        "queue", "job_id", "pk", "ended_at"
    )
    older = []
    for queue, job_id, pk, ended_at in found:
        row = wanted.pop((queue, job_id), None)
        if row is not None and row.ended_at > ended_at:
            # A person revived the job, and it has ended again.
            row.pk = pk
            older.append(row)
    # Another archiver may be writing the same jobs: the constraint decides, and both rows are right.
    table.bulk_create(list(wanted.values()), ignore_conflicts=True)
    if older:
        fields = [field.name for field in ArchivedJob._meta.concrete_fields if not field.primary_key]
        table.bulk_update(older, fields)
    return len(wanted)


def prune(days: float, limit: int = BATCH) -> int:
    """Delete rows that ended more than `days` ago, at most `limit`.  Returns how many were deleted."""
    old = ArchivedJob.objects.filter(ended_at__lt=timezone.now() - timedelta(days=days)).order_by("ended_at", "pk")
    keys = list(old.values_list("pk", flat=True)[:limit])
    return ArchivedJob.objects.filter(pk__in=keys).delete()[0] if keys else 0


def at(queue: str, id: str) -> JobInfo | None:
    """Return the archived job of this queue with this id.  Every PUT calls this: see ApiToken.objects.with_secret."""
    query = f"SELECT * FROM {ArchivedJob._meta.db_table} WHERE queue = %s AND job_id = %s"
    row = next(iter(ArchivedJob.objects.raw(query, [queue, id])), None)
    return info_of(row) if row is not None else None


def find(id: str, queue: str | None = None) -> JobInfo | None:
    """Return the archived job with this id, the newest if several queues had one; None if there is none."""
    return next((info for info in found(id) if queue in (None, info.queue)), None)


def found(id: str) -> list[JobInfo]:
    """Return all archived jobs with this id, one of each queue that had one, the newest first."""
    return [info_of(row) for row in ArchivedJob.objects.filter(job_id=id).order_by("-ended_at", "-pk")]


def page(
    *, names: Iterable[str] = (), status: str = "", cursor: Cursor | None = None, limit: int = 50
) -> tuple[list[JobInfo], Cursor | None]:
    """Return a page of the history, newest first, and where the next one begins (None = this is the last)."""
    rows: QuerySet[ArchivedJob] = ArchivedJob.objects.order_by("-ended_at", "-pk")
    if wanted := list(names):
        rows = rows.filter(name__in=wanted)
    if status:
        rows = rows.filter(status=status)
    if cursor is not None:
        rows = rows.filter(ended_at__lte=cursor.ended_at).exclude(Q(ended_at=cursor.ended_at) & Q(pk__gte=cursor.pk))
    found = list(rows[: limit + 1])
    after = Cursor(found[limit - 1].ended_at, found[limit - 1].pk) if len(found) > limit else None
    return [info_of(row) for row in found[:limit]], after


def row_of(info: JobInfo) -> ArchivedJob:
    """Return an unsaved row whose values all fit their columns, whatever is in the record."""
    last = info.attempts[-1] if info.attempts else None
    try:
        enqueued_at = moment(decode(info.id, info.queue, info.record).enqueued_at)
    except CorruptRecord:
        enqueued_at = None
    return ArchivedJob(
        job_id=text(info.id, 255),
        queue=text(info.queue, 128),
        name=text(name_of(info.record), 255),
        status=info.state.value,
        record=info.record,
        result=text(without_worker(info.result or b"").decode(errors="replace")),
        failures=min(info.failures, 2**31 - 1),
        crashes=min(info.crashes, 2**31 - 1),
        log=text(json.dumps([list(attempt) for attempt in info.attempts])) if info.attempts else "",
        error_type=text(last.error_type, 255) if last else "",
        error=text(last.error) if last else "",
        worker=text(info.worker or worker_of(info.result or b"") or (last.worker if last else ""), 255),
        run_ms=info.run_ms,
        enqueued_at=enqueued_at,
        ended_at=moment(info.at) or timezone.now(),
    )


def info_of(row: ArchivedJob) -> JobInfo:
    """Return the job as the store described it when it ended."""
    return JobInfo(
        row.job_id,
        row.queue,
        bytes(row.record),
        State(row.status),
        failures=row.failures,
        crashes=row.crashes,
        at=round(as_aware(row.ended_at).timestamp() * 1000),
        worker=row.worker,
        result=row.result.encode() or None,
        run_ms=row.run_ms,
        attempts=tuple(Attempt(*line) for line in json.loads(row.log or "[]")),
    )


def as_stored(value: datetime) -> datetime:
    """Return a time as the database needs it: without a zone if the project sets USE_TZ = False."""
    if timezone.is_aware(timezone.now()):
        return value
    return timezone.make_naive(value, timezone.get_default_timezone())


def as_aware(value: datetime) -> datetime:
    """Return a time from the database with its zone."""
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_default_timezone())


def text(value: str, limit: int | None = None) -> str:
    """Return text that a database accepts: PostgreSQL refuses NUL."""
    return value.replace("\x00", "\ufffd")[:limit]


def moment(ms: int) -> datetime | None:
    """Return a stored time, or None for 0 and for times that no calendar can represent."""
    try:
        return as_stored(datetime.fromtimestamp(ms / 1000, UTC)) if ms > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
