"""Finished jobs in the database: found, listed page by page, and deleted when they are old."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from django_jobs.archive.models import ArchivedJob, ArchivedTag
from django_jobs.archive.values import as_stored
from django_jobs.archive.writing import BATCH
from django_jobs.core.values import Attempt, JobInfo, State

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


def prune(days: float, limit: int = BATCH) -> int:
    """Delete rows that ended more than `days` ago, at most `limit`.  Returns how many were deleted."""
    old = ArchivedJob.objects.filter(ended_at__lt=timezone.now() - timedelta(days=days)).order_by("ended_at", "pk")
    keys = list(old.values_list("pk", flat=True)[:limit])
    # Only the keys: their tags are deleted with them, for which Django reads the rows.
    return ArchivedJob.objects.filter(pk__in=keys).only("pk").delete()[1][ArchivedJob._meta.label] if keys else 0


def at(queue: str, id: str) -> JobInfo | None:
    """Return the archived job of this queue with this id.  Every PUT calls this: see ApiToken.objects.with_secret."""
    query = f"SELECT * FROM {ArchivedJob._meta.db_table} WHERE queue = %s AND job_id = %s"
    row = next(iter(ArchivedJob.objects.raw(query, [queue, id])), None)
    return info_of(row) if row is not None else None


def at_many(queue: str, ids: Sequence[str]) -> dict[str, JobInfo]:
    """Return the archived jobs of this queue with these ids, by id."""
    infos: dict[str, JobInfo] = {}
    for start in range(0, len(ids), BATCH):
        rows = ArchivedJob.objects.filter(queue=queue, job_id__in=ids[start : start + BATCH])
        infos.update({row.job_id: info_of(row) for row in rows})
    return infos


def find(id: str, queue: str | None = None) -> JobInfo | None:
    """Return the archived job with this id, the newest if several queues had one; None if there is none."""
    return next((info for info in found(id) if queue in (None, info.queue)), None)


def found(id: str) -> list[JobInfo]:
    """Return all archived jobs with this id, one of each queue that had one, the newest first."""
    return [info_of(row) for row in ArchivedJob.objects.filter(job_id=id).order_by("-ended_at", "-pk")]


def page(
    *, names: Iterable[str] = (), status: str = "", tag: str = "", cursor: Cursor | None = None, limit: int = 50
) -> tuple[list[JobInfo], Cursor | None]:
    """Return a page of the history, newest first, and where the next one begins (None = this is the last).

    A page of a tag may have fewer jobs than `limit`, if jobs have ended again without it."""
    if tag:
        return _tagged(tag, names, status, cursor, limit)
    rows: QuerySet[ArchivedJob] = ArchivedJob.objects.order_by("-ended_at", "-pk")
    if wanted := list(names):
        rows = rows.filter(name__in=wanted)
    if status:
        rows = rows.filter(status=status)
    if cursor is not None:
        rows = rows.filter(_is_behind(cursor, "pk"))
    found = list(rows[: limit + 1])
    after = Cursor(found[limit - 1].ended_at, found[limit - 1].pk) if len(found) > limit else None
    return [info_of(row) for row in found[:limit]], after


def _is_behind(cursor: Cursor, key: str) -> Q:
    """Return the condition for what follows the cursor; `key`: the column with the key of the job."""
    same = Q(ended_at=cursor.ended_at) & Q(**{f"{key}__gte": cursor.pk})
    return Q(ended_at__lte=cursor.ended_at) & ~same


def _tagged(
    tag: str, names: Iterable[str], status: str, cursor: Cursor | None, limit: int
) -> tuple[list[JobInfo], Cursor | None]:
    """The same of the jobs with a tag, in the order of the index of tags."""
    tags = ArchivedTag.objects.filter(tag=tag).order_by("-ended_at", "-job_id").select_related("job")
    if wanted := list(names):
        tags = tags.filter(job__name__in=wanted)
    if status:
        tags = tags.filter(job__status=status)
    if cursor is not None:
        tags = tags.filter(_is_behind(cursor, "job_id"))
    found = list(tags[: limit + 1])
    after = Cursor(found[limit - 1].ended_at, found[limit - 1].job_id) if len(found) > limit else None
    # Not in the query: PostgreSQL would then read all jobs of a frequent tag, and sort them.
    return [info_of(each.job) for each in found[:limit] if each.ended_at == each.job.ended_at], after


def with_tag(rows: QuerySet[ArchivedJob], tag: str) -> QuerySet[ArchivedJob]:
    """Return those of these rows that had this tag when they ended."""
    return rows.filter(tags__tag=tag, tags__ended_at=F("ended_at"))


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


def as_aware(value: datetime) -> datetime:
    """Return a time from the database with its zone."""
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_default_timezone())
