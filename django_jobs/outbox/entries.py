"""Entries of the outbox: written in the caller's transaction, removed when the store has them.

The data of a row are a line of JSON and the bytes behind it: the job's record, or the fields of a workflow or batch.
A part of the line that this version does not know is ignored; a line of another format is not sent, but shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from time import time
from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections, transaction
from django.db.models.functions import Length

from django_jobs.core.values import NewJob, State
from django_jobs.exceptions import CorruptRecord
from django_jobs.serialization.checked import check_fields, count_of, loads
from django_jobs.serialization.record import decode
from django_jobs.stores.values.sizes import chunks, in_batches

#: Written first into each row.
FORMAT = 1
#: Rows in one statement: what each database takes.
ROWS = 500

Fields = Mapping[str, bytes | int]


class EntryKind(StrEnum):
    """What an entry holds."""

    JOB = "job"
    WORKFLOW = "workflow"
    #: the end of `with batch:`.
    CLOSE = "close"


class _OfJob(NamedTuple):
    """What a row says of a job beside its id and its record: see NewJob."""

    run_at: int
    on_conflict: str
    schedule_run: Any
    run_in: int | None
    expires_in: int | None
    digest: str


class NeverAdded(NamedTuple):
    """A job that was accepted, and will never be in the store."""

    queue: str
    new: NewJob
    #: as that of a handle: why.
    state: str


#: Called with such jobs, which no job at their end tells of.
never_added: set[Callable[[Sequence[NeverAdded]], None]] = set()


class UnreadableRow(Exception):
    """A row that this version cannot send, and why."""


class Entry(NamedTuple):
    """What is kept for the store: a job, a workflow, or the end of a batch."""

    kind: EntryKind
    #: the id of the job, workflow or batch.
    key: str
    name: str
    queue: str = ""
    #: the job, if it is one.
    new: NewJob | None = None
    #: the batch that the job joins; of a `CLOSE`, the batch that ends.
    batch: str = ""
    #: the fields of the workflow, or of the batch if it may not be in the store yet.
    fields: Fields = {}
    #: ms since the epoch: when it was enqueued.  Delays count from then.
    at: int = 0
    #: its caller has chosen the id.
    is_own_id: bool = False
    #: a full queue refuses it (`try_enqueue`).
    is_optional: bool = False
    #: of its row alone, 32 characters: two callers may use one id.
    token: str = ""


def rows(alias: str) -> Any:
    """Return the rows in this database.  The model is looked up, because the first jobs are defined before models may
    be imported."""
    return apps.get_model("django_jobs", "OutboxEntry").objects.using(alias)


def write(entries: Iterable[Entry], alias: str) -> None:
    """Write a row for each entry, in the transaction that is open on this alias.  Raises DatabaseError.

    In parts of some MB: MySQL and MariaDB refuse statements of more than 16 MB (max_allowed_packet)."""
    table = rows(alias)
    for some in in_batches((table.model(**_columns(entry)) for entry in entries), lambda row: len(row.data), ROWS):
        table.bulk_create(some)


def remove(tokens: Collection[str], alias: str) -> int:
    """Remove these rows, because the store has what they hold.  Returns how many there were."""
    return sum(remove_found(rows(alias).filter(token__in=some), alias) for some in chunks(list(tokens), ROWS))


def tell_never_added(jobs: Iterable[NeverAdded]) -> None:
    """Call all of `never_added`.  Raises DatabaseError."""
    if never_added and (told := list(jobs)):
        for tell in never_added:
            tell(told)


def remove_found(found: Any, alias: str) -> int:
    """Remove the rows of this queryset.  Returns how many there were."""
    if connections[alias].vendor != "mysql":
        return found._raw_delete(alias) or 0
    return sum(delete(some, alias) for some in chunks(list(found.values_list("pk", flat=True)), ROWS))


def drop(found: Any, alias: str) -> int:
    """Remove the rows of this queryset: somebody has decided that what they hold is never sent.  Returns how many there
    were.  Raises DatabaseError."""
    if not never_added:
        return remove_found(found, alias)
    dropped = 0
    with transaction.atomic(using=alias):
        for some in in_batches(found.annotate(size=Length("data")).defer("data"), lambda row: row.size, ROWS):
            ids = [row.pk for row in some]
            jobs = list(_jobs_in(rows(alias).filter(pk__in=ids, kind=EntryKind.JOB)))
            if gone := delete(ids, alias):
                tell_never_added(jobs)
            dropped += gone
    return dropped


def _jobs_in(found: Iterable[Any]) -> Iterator[NeverAdded]:
    for row in found:
        with suppress(UnreadableRow):
            if (new := unpack(row).new) is not None:
                yield NeverAdded(row.queue, new, State.CANCELLED)


def delete(ids: Collection[int], alias: str) -> int:
    """Delete the rows with these primary keys.  Returns how many there were.

    InnoDB locks whatever a statement reads, which may be a whole small table: it would wait for rows of transactions
    that are still open, or end in a deadlock.  Joined to the list of ids, it looks up each row."""
    connection, ids = connections[alias], list(ids)
    if connection.vendor != "mysql":
        return rows(alias).filter(pk__in=ids)._raw_delete(alias) or 0
    if not ids:
        return 0
    table, others = connection.ops.quote_name(rows(alias).model._meta.db_table), " UNION ALL SELECT %s" * (len(ids) - 1)
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE e FROM (SELECT %s AS id{others}) AS done "
            f"STRAIGHT_JOIN {table} AS e FORCE INDEX (PRIMARY) ON e.id = done.id",
            ids,
        )
        return int(cursor.rowcount)


def written_at(row: Any) -> int:
    """Return when this entry was enqueued (ms).  Its token has the time: without USE_TZ, `created` is a local time, and
    jumps when the clocks change."""
    return time_in(row.token) or round(row.created.timestamp() * 1000)


def time_in(token: str) -> int:
    """Return the time (ms) with which a token begins; 0 if it is none."""
    try:
        return int(token[:12], 16)
    except ValueError:
        return 0


def age(row: Any) -> float:
    """Return the seconds since this entry was enqueued, or since somebody decided to send it again."""
    return time() - written_at(row) / 1000 - float((row.fresh_at - row.created).total_seconds())


def is_waited_for(batch: str, alias: str) -> bool:
    """Return whether jobs of this batch are still in the outbox: it must not end before them."""
    return bool(rows(alias).filter(batch=batch, kind=EntryKind.JOB).exists())


def kept_of(batch: str, ids: Sequence[str], alias: str) -> set[str]:
    """Return which of these jobs of a batch are still in the outbox."""
    of_batch = rows(alias).filter(batch=batch, kind=EntryKind.JOB)
    return {key for part in chunks(ids, ROWS) for key in of_batch.filter(key__in=part).values_list("key", flat=True)}


def _columns(entry: Entry) -> dict[str, Any]:
    from django_jobs.archive.values import moment  # its package has models, too

    at = moment(entry.at)
    known = {"kind": entry.kind, "key": entry.key, "name": entry.name[:255], "queue": entry.queue, "batch": entry.batch}
    return {**known, "token": entry.token, "data": pack(entry), "created": at, "fresh_at": at}


def pack(entry: Entry) -> bytes:
    """Return the data of a row."""
    head: dict[str, Any] = {"format": FORMAT, "at": entry.at}
    parts: list[bytes] = []
    if (new := entry.new) is not None:
        given = {name: getattr(new, name) for name in _OfJob._fields}
        head["job"] = {name: value for name, value in given.items() if value != NewJob._field_defaults[name]}
        head |= {"record": len(new.record), **({"own": True} if entry.is_own_id else {})}
        head |= {"optional": True} if entry.is_optional else {}
        parts.append(new.record)
    if entry.fields:
        head["fields"] = [[name, value if isinstance(value, int) else None] for name, value in entry.fields.items()]
        binary = [value for value in entry.fields.values() if not isinstance(value, int)]
        head["sizes"] = list(map(len, binary))
        parts += binary
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(parts)


def unpack(row: Any) -> Entry:
    """Return what a row holds.  Raises UnreadableRow."""
    data = bytes(row.data)
    try:
        line, _, rest = data.partition(b"\n")
        head = loads(line)
        if head["format"] != FORMAT:
            raise UnreadableRow(f"It has format {head['format']!r:.20}, and this django_jobs knows {FORMAT}.")
        new = None
        if row.kind == EntryKind.JOB:
            size = count_of(head["record"])
            record, rest = rest[:size], rest[size:]
            known = {name: value for name, value in head["job"].items() if name in _OfJob._fields}
            check_fields(_OfJob, known)
            if known.get("schedule_run") is not None:
                schedule, at = known["schedule_run"]
                known["schedule_run"] = (str(schedule), count_of(at))
            new = NewJob(id=row.key, record=record, controls=decode(row.key, row.queue, record).controls, **known)
        fields: dict[str, bytes | int] = {}
        sizes = iter(head.get("sizes", ()))
        for name, number in head.get("fields", ()):
            size = count_of(next(sizes)) if number is None else 0
            fields[str(name)], rest = (rest[:size] if number is None else count_of(number)), rest[size:]
        place = (EntryKind(row.kind), row.key, row.name, row.queue)
        flags = bool(head.get("own")), bool(head.get("optional")), row.token
        return Entry(*place, new, row.batch, fields, count_of(head["at"]), *flags)
    except (CorruptRecord, ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
        raise UnreadableRow(f"Its data cannot be read: {error!r:.200}") from error
