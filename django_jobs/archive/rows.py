"""Finished jobs in the database: found, listed page by page, and deleted when they are old."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from django_jobs.archive.models import ArchivedJob, ArchivedTag
from django_jobs.archive.values import as_stored, moment, text
from django_jobs.archive.writing import BATCH
from django_jobs.core import registry
from django_jobs.core.attempt import LINE, unpacked
from django_jobs.core.values import Attempt, JobInfo, State
from django_jobs.serialization.checked import Unreadable, loads, typed
from django_jobs.stores.values.sizes import chunks, grouped

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Rows that one search checks, and how many it reads at a time: about a second.
MOST_CHECKED, CHUNK = 10_000, 500


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

    @property
    def ms(self) -> int:
        """The next ms after this time: what follows the cursor has ended before it."""
        return (as_aware(self.ended_at) - EPOCH) // timedelta(milliseconds=1) + 1

    def __str__(self) -> str:
        return f"{(as_aware(self.ended_at) - EPOCH) // timedelta(microseconds=1)}_{self.pk}"


def prune(days: float, limit: int = BATCH) -> int:
    """Delete rows that ended more than `days` ago, at most `limit`.  Returns how many were deleted."""
    old = ArchivedJob.objects.filter(ended_at__lt=timezone.now() - timedelta(days=days)).order_by("ended_at", "pk")
    keys = list(old.values_list("pk", flat=True)[:limit])
    # Only the keys: their tags are deleted with them, for which Django reads the rows.
    return ArchivedJob.objects.filter(pk__in=keys).only("pk").delete()[1][ArchivedJob._meta.label] if keys else 0


def found_many(ids: Sequence[str]) -> dict[str, list[JobInfo]]:
    """Return what `found` returns for each of these ids that the archive has."""
    found = (ArchivedJob.objects.filter(job_id__in=some).order_by("-ended_at", "-pk") for some in chunks(ids, BATCH))
    return grouped((row.job_id, info_of(row)) for rows in found for row in rows)


def find(id: str, queue: str | None = None) -> JobInfo | None:
    """Return the archived job with this id, the newest if several queues had one; None if there is none."""
    return next((info for info in found(id) if queue in (None, info.queue)), None)


def found(id: str) -> list[JobInfo]:
    """Return all archived jobs with this id, one of each queue that had one, the newest first.  Every PUT calls this:
    see ApiToken.objects.with_secret."""
    query = f"SELECT * FROM {ArchivedJob._meta.db_table} WHERE job_id = %s ORDER BY ended_at DESC, id DESC"
    return [info_of(row) for row in ArchivedJob.objects.raw(query, [text(id)])]


def page(
    *, names: Iterable[str] = (), status: str = "", tag: str = "", cursor: Cursor | None = None, limit: int = 50
) -> tuple[list[JobInfo], Cursor | None]:
    """Return a page of the history, newest first, and where the next one begins (None = this is the last).

    A page of a tag may have fewer jobs than `limit`, if jobs have ended again without it."""
    rows: QuerySet[Any]
    if tag:  # in the order of the index of tags
        rows, of_job, key = ArchivedTag.objects.filter(tag=text(tag)).select_related("job"), "job__", "job_id"
    else:
        rows, of_job, key = ArchivedJob.objects.all(), "", "pk"
    wanted = {"name__in": [text(name) for name in _all_names(names)], "status": status}
    rows = rows.filter(**{f"{of_job}{column}": value for column, value in wanted.items() if value})
    if cursor is not None:
        rows = rows.filter(_is_behind(cursor, key))
    found: list[Any] = list(rows.order_by("-ended_at", f"-{key}")[: limit + 1])
    after = Cursor(found[limit - 1].ended_at, getattr(found[limit - 1], key)) if len(found) > limit else None
    # Not in the query: PostgreSQL would then read all jobs of a frequent tag, and sort them.
    some = [each.job for each in found[:limit] if each.ended_at == each.job.ended_at] if tag else found[:limit]
    return [info_of(row) for row in some], after


def chosen(
    rows: QuerySet[ArchivedJob],
    *,
    names: Iterable[str] = (),
    status: str = "",
    tag: str = "",
    queue: str = "",
    id: str = "",
    since: int = 0,
    before: int = 0,
) -> QuerySet[ArchivedJob]:
    """Return those of these rows that have these values.  `since` and `before`: ms, of their end; 0 = any."""
    wanted: dict[str, Any] = {"name__in": [text(name) for name in _all_names(names)], "status": status}
    wanted |= {"queue": text(queue), "job_id": text(id), "ended_at__gte": moment(since), "ended_at__lt": moment(before)}
    rows = rows.filter(**{key: value for key, value in wanted.items() if value})
    return with_tag(rows, tag) if tag else rows


class Searched(NamedTuple):
    """The rows of one stretch of the history that a search has found."""

    rows: list[ArchivedJob]
    #: where the next stretch begins; None = all were checked.
    following: Cursor | None
    checked: int


def search(
    rows: QuerySet[ArchivedJob],
    accepts: Callable[[JobInfo], bool],
    *,
    cursor: Cursor | None = None,
    limit: int,
    most: int = 0,
) -> Searched:
    """Return up to `limit` of these rows whose job `accepts` takes, newest first.  About `most` are checked at most; 0:
    MOST_CHECKED."""
    found, checked = list[ArchivedJob](), 0
    while True:
        some = rows.filter(_is_behind(cursor, "pk")) if cursor else rows
        chunk = list(some.order_by("-ended_at", "-pk")[:CHUNK])
        for row in chunk:
            checked += 1
            found += [row] if accepts(info_of(row)) else []
            if len(found) == limit:
                return Searched(found, Cursor(row.ended_at, row.pk), checked)
        if len(chunk) < CHUNK:
            return Searched(found, None, checked)
        cursor = Cursor(chunk[-1].ended_at, chunk[-1].pk)
        if checked >= (most or MOST_CHECKED):
            return Searched(found, cursor, checked)


def _all_names(names: Iterable[str]) -> list[str]:
    """Return all names of these job types: a row has the name that the type had when the job ended."""
    return [each for name in names for each in registry.names_of(name)]


def _is_behind(cursor: Cursor, key: str) -> Q:
    """Return the condition for what follows the cursor; `key`: the column with the key of the job."""
    same = Q(ended_at=cursor.ended_at) & Q(**{f"{key}__gte": cursor.pk})
    return Q(ended_at__lte=cursor.ended_at) & ~same


def with_tag(rows: QuerySet[ArchivedJob], tag: str) -> QuerySet[ArchivedJob]:
    """Return those of these rows that had this tag when they ended."""
    return rows.filter(tags__tag=text(tag), tags__ended_at=F("ended_at"))


def info_of(row: ArchivedJob) -> JobInfo:
    """Return the job as the store described it when it ended.  A state that only another version knows is shown as
    dead, and a line of the log names it."""
    log, known = read_log(row.log), row.status in set(State)
    if not known:
        log += (Attempt(0, "corrupt", 0, error=f"This version does not know the state {row.status!r} of the row."),)
    # The last line has the number of the last attempt; that one is not among the failures if a person ended it.
    ended_by_hand = bool(log) and log[-1].outcome in ("killed", "discarded")
    earlier = log[-1].attempt - row.failures - row.crashes - ended_by_hand if log else 0
    return JobInfo(
        row.job_id,
        row.queue,
        bytes(row.record),
        State(row.status) if known else State.DEAD,
        failures=row.failures,
        crashes=row.crashes,
        at=round(as_aware(row.ended_at).timestamp() * 1000),
        worker=row.worker,
        result=row.result.encode() or None,
        run_ms=row.run_ms,
        attempts=log,
        earlier=max(0, earlier),
    )


def read_log(text: str) -> tuple[Attempt, ...]:
    """Return the log of attempts in a row; one that cannot be read is shown as text."""
    if not text:
        return ()
    try:
        return tuple(unpacked(typed(Attempt, dict(zip(LINE, line, strict=False)))) for line in loads(text))
    except (Unreadable, TypeError):
        return (Attempt(0, "corrupt", 0, error=text),)


def as_aware(value: datetime) -> datetime:
    """Return a time from the database with its zone."""
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_default_timezone())
