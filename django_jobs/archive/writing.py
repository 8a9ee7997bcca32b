"""Finished jobs → rows, many at a time: one statement per batch, which inserts new rows and replaces older ones.

The archiver must keep up with workers, and a model instance per row would cost more than the database needs.  SQLite
and PostgreSQL have a statement each; every other database goes through the ORM.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import connections, models, router, transaction
from django.db.models import F, QuerySet

from django_jobs.archive.models import ArchivedJob, ArchivedTag
from django_jobs.archive.values import columns_of
from django_jobs.core.values import JobInfo
from django_jobs.serialization.record import tags_of
from django_jobs.stores.values.sizes import chunks, grouped

#: Rows per statement of the ORM: below every database's limit of variables.
BATCH = 500
#: Column types of PostgreSQL for the rows that arrive as JSON; `record` is text there, in base64.
_TYPES: dict[type[models.Field[Any, Any]], str] = {
    models.CharField: "text",
    models.BinaryField: "text",
    models.TextField: "text",
    models.PositiveIntegerField: "integer",
    models.BigIntegerField: "bigint",
    models.DateTimeField: "timestamptz",
}

Rows = list[dict[str, Any]]


def prepare(infos: Sequence[JobInfo]) -> Rows:
    """Return the column values of these jobs, one row per job: its last end.  Needs no database, so that a thread can
    do it while another one writes."""
    rows = map(columns_of, sorted(infos, key=lambda info: info.at))
    latest = {(row["job_id"], row["queue"]): row for row in rows}
    # In the order of the index: neighbours share its pages, and two archivers cannot wait for each other's rows.
    return [latest[key] for key in sorted(latest)]


def write(infos: Sequence[JobInfo]) -> None:
    """Write finished jobs.  Keeps existing rows, unless the job ended again later."""
    write_rows(prepare(infos))


def write_rows(rows: Rows) -> None:
    """Write what `prepare` returned, in one transaction."""
    if not rows:
        return
    # Rows written a moment ago must be visible, so never read from a replica.
    alias = router.db_for_write(ArchivedJob)
    tagged = {(row["job_id"], row["queue"]): tags for row in rows if (tags := tags_of(row["record"]))}
    with transaction.atomic(using=alias):
        match connections[alias].vendor:
            case "sqlite":
                _on_sqlite(alias, rows)
            case "postgresql":
                _on_postgresql(alias, rows)
            case _:
                for start in range(0, len(rows), BATCH):
                    _with_orm(ArchivedJob.objects.using(alias), rows[start : start + BATCH])
        _delete_left(ArchivedJob.objects.using(alias), [row["job_id"] for row in rows if row["log"]])
        _write_tags(alias, [(tag, *key) for key, tags in tagged.items() for tag in tags])


def _on_sqlite(alias: str, rows: Rows) -> None:
    connection = connections[alias]
    adapt, names = connection.ops.adapt_datetimefield_value, _names()
    for row in rows:
        row["enqueued_at"], row["ended_at"] = adapt(row["enqueued_at"]), adapt(row["ended_at"])
    sql = _upsert(alias, f"VALUES ({', '.join(['%s'] * len(names))})")
    with connection.cursor() as cursor:
        cursor.executemany(sql, [tuple(row.values()) for row in rows])


def _on_postgresql(alias: str, rows: Rows) -> None:
    # JSON, because both drivers send a string as it is: they would take longer to quote each value than to write it.
    for row in rows:
        row["record"] = b64encode(row["record"]).decode()
        row["enqueued_at"] = row["enqueued_at"] and row["enqueued_at"].isoformat()
        row["ended_at"] = row["ended_at"].isoformat()
    fields = [(field.column, _TYPES[type(field)]) for field in _fields()]
    picked = ", ".join("decode(record, 'base64')" if name == "record" else f'"{name}"' for name, _ in fields)
    typed = ", ".join(f'"{name}" {kind}' for name, kind in fields)
    sql = _upsert(alias, f"SELECT {picked} FROM json_to_recordset(%s::json) AS given({typed})")
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, [json.dumps(rows)])


def _upsert(alias: str, source: str) -> str:
    quote = connections[alias].ops.quote_name
    table, names = quote(ArchivedJob._meta.db_table), [quote(name) for name in _names()]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) {source} ON CONFLICT (job_id, queue) DO UPDATE SET {changed}"
        # A person revived the job, and it has ended again; otherwise the row stays as it is.
        f" WHERE excluded.ended_at > {table}.ended_at"
    )


def _with_orm(table: QuerySet[ArchivedJob], rows: Rows) -> None:
    wanted = {(row["queue"], row["job_id"]): ArchivedJob(**row) for row in rows}
    ids = [row["job_id"] for row in rows]
    found = table.filter(queue__in={row["queue"] for row in rows}, job_id__in=ids)
    older = []
    for queue, job_id, pk, ended_at in found.values_list("queue", "job_id", "pk", "ended_at"):
        row = wanted.pop((queue, job_id), None)
        if row is not None and row.ended_at > ended_at:
            row.pk = pk
            older.append(row)
    # Another archiver may be writing the same jobs: the constraint decides, and both rows are right.
    table.bulk_create(list(wanted.values()), ignore_conflicts=True)
    if older:
        table.bulk_update(older, _names())


def _delete_left(table: QuerySet[ArchivedJob], ids: Sequence[str]) -> None:
    """Delete earlier ends of these jobs in other queues: a person revived the job, and a retry has moved it.

    Such a job has a log.  Another job with the same id was enqueued at another time."""
    for some in chunks(ids, BATCH):
        ends = table.filter(job_id__in=some, enqueued_at__isnull=False).order_by("ended_at", "pk")
        ended = grouped(((id, at), pk) for pk, id, at in ends.values_list("pk", "job_id", "enqueued_at"))
        if left := [pk for keys in ended.values() for pk in keys[:-1]]:
            table.filter(pk__in=left).only("pk").delete()


def _write_tags(alias: str, tags: Sequence[tuple[str, str, str]]) -> None:
    """Write tags, each with the id and the queue of its job, whose row is written: one statement, none without tags.

    A tag that the job had at an earlier end, and has no more, keeps that time and is not found (rows.py: with_tag)."""
    if not tags:
        return
    quote, vendor = connections[alias].ops.quote_name, connections[alias].vendor
    table, jobs = quote(ArchivedTag._meta.db_table), quote(ArchivedJob._meta.db_table)
    insert = f"INSERT INTO {table} (tag, ended_at, job_id) "
    update = " ON CONFLICT (job_id, tag) DO UPDATE SET ended_at = excluded.ended_at"
    with connections[alias].cursor() as cursor:
        match vendor:
            case "sqlite":
                found = f"SELECT %s, ended_at, id FROM {jobs} WHERE job_id = %s AND queue = %s"
                cursor.executemany(insert + found + update, tags)
            case "postgresql":
                found = (
                    f"SELECT given.tag, job.ended_at, job.id FROM json_to_recordset(%s::json) "
                    f"AS given(tag text, id text, queue text) JOIN {jobs} AS job "
                    f"ON job.job_id = given.id AND job.queue = given.queue"
                )
                given = [{"tag": tag, "id": id, "queue": queue} for tag, id, queue in tags]
                cursor.execute(insert + found + update, [json.dumps(given)])
            case _:
                for start in range(0, len(tags), BATCH):
                    _tags_with_orm(alias, tags[start : start + BATCH])


def _tags_with_orm(alias: str, tags: Sequence[tuple[str, str, str]]) -> None:
    ids, queues = {id for _, id, _ in tags}, {queue for _, _, queue in tags}
    rows = ArchivedJob.objects.using(alias).filter(job_id__in=ids, queue__in=queues)
    found = {(id, queue): (pk, at) for pk, id, queue, at in rows.values_list("pk", "job_id", "queue", "ended_at")}
    ArchivedTag.objects.using(alias).filter(job__in=[pk for pk, _ in found.values()]).exclude(
        ended_at=F("job__ended_at")
    ).delete()
    known = [(tag, *found[id, queue]) for tag, id, queue in tags if (id, queue) in found]
    made = [ArchivedTag(tag=tag, job_id=pk, ended_at=at) for tag, pk, at in known]
    ArchivedTag.objects.using(alias).bulk_create(made, ignore_conflicts=True)


@cache
def _fields() -> list[models.Field[Any, Any]]:
    """Return the columns in the order of `columns_of`, which the primary key is not among."""
    return [field for field in ArchivedJob._meta.concrete_fields if not field.primary_key]


def _names() -> list[str]:
    return [str(field.column) for field in _fields()]
