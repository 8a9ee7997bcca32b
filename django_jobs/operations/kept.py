"""Entries of the outbox as operators see them and act on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django_jobs import outbox
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import JobInfo, State
from django_jobs.operations import relay
from django_jobs.operations.relay import is_old as is_old
from django_jobs.outbox import EntryKind, UnreadableRow
from django_jobs.outbox.entries import ROWS
from django_jobs.runtime.savepoint import savepoint
from django_jobs.serialization.payloads import iso, job_payload
from django_jobs.stores.values.sizes import chunks

#: The largest id that a database can be asked for.
LARGEST = 2**63 - 1


class Contents(NamedTuple):
    """How much is in the outbox."""

    #: entries that workers send.
    waiting: int = 0
    #: entries that wait for a decision.
    held: int = 0
    #: seconds since the oldest waiting entry was enqueued.
    oldest: float = 0.0
    #: entries that nobody sends, because OUTBOX is off.
    left: int = 0

    @property
    def oldest_ms(self) -> int:
        """The same as `oldest`, in ms."""
        return int(self.oldest * 1000)


class Acted(NamedTuple):
    """What became of the entries that somebody named."""

    #: rows of the entries that will be sent, or were deleted.
    done: Sequence[Any] = ()
    #: ids of entries that were not sent because they may run twice.
    old: Sequence[int] = ()
    #: ids of entries that are not in the outbox.
    missing: Sequence[int] = ()


def rows() -> Any:
    """Return the entries, the oldest first."""
    return outbox.rows(get_settings().database).order_by("pk")


def contents() -> Contents:
    """Return how much is in the outbox, also while OUTBOX is off.  Raises DatabaseError."""
    with savepoint(get_settings().database):
        found = outbox.backlog()
        return Contents(left=rows().count()) if found is None else Contents(*found)


def page(held: bool | None, after: int = 0, limit: int = 50, jobs: Collection[str] = ()) -> tuple[list[Any], int]:
    """Return the next entries, and the id after which the next page begins (0 = this is the last).

    `held`: only these, or only those that wait; None for both.  `jobs`: only jobs of these types, by whichever name."""
    found = rows().filter(pk__gt=after)
    if held is not None:
        found = found.filter(is_held=held)
    if jobs:
        names = {each for name in jobs for each in registry.names_of(name)}
        found = found.filter(kind=EntryKind.JOB, name__in=names)
    some = list(found[: limit + 1])
    return some[:limit], some[limit - 1].pk if len(some) > limit else 0


def info_of(row: Any) -> JobInfo | None:
    """Return the job of an entry; None if it is no job.  Raises Unreadable."""
    new = outbox.unpack(row).new
    return None if new is None else JobInfo(new.id, row.queue, new.record, State.QUEUED)


def entry_payload(row: Any, *, show_arguments: bool = True) -> dict[str, Any]:
    """Return one entry as the HTTP API and `jobs outbox --json` give it; sensitive arguments are masked."""
    payload = {
        "id": row.pk,
        "kind": row.kind,
        "key": row.key,
        "name": row.name,
        "queue": row.queue or None,
        "batch": row.batch or None,
        "enqueued_at": iso(outbox.written_at(row)),
        "held": row.is_held,
        "old": is_old(row),
        "reason": row.reason or None,
        "args": None,
        "kwargs": None,
    }
    if show_arguments:
        try:
            job = info_of(row)
        except UnreadableRow as error:
            payload["reason"] = row.reason or str(error)
        else:
            shown = {} if job is None else job_payload(job)
            payload |= {key: shown.get(key) for key in ("args", "kwargs")}
    return payload


def send(ids: Iterable[int], *, run_twice: bool = False) -> Acted:
    """Let workers send these entries.  Entries that are too old to be sent safely only if `run_twice`."""
    found, missing = _named(ids)
    old = set() if run_twice else {row.pk for row in found if is_old(row)}
    done = [row for row in found if row.pk not in old]
    for some in chunks([row.pk for row in waits_for_somebody(done)], ROWS):
        relay.send_again(some)
    return Acted(done, sorted(old), missing)


def waits_for_somebody(found: Iterable[Any]) -> list[Any]:
    """Return those of these rows, as they were read, that `send` changes: the others are sent in any case."""
    return [row for row in found if row.is_held or is_old(row)]


def delete(ids: Iterable[int]) -> Acted:
    """Delete these entries: what they hold is never sent."""
    found, missing = _named(ids)
    for some in chunks([row.pk for row in found], ROWS):
        relay.delete(some)
    return Acted(found, (), missing)


def _named(ids: Iterable[int]) -> tuple[list[Any], list[int]]:
    wanted = list(dict.fromkeys(ids))
    possible = [pk for pk in wanted if 0 < pk <= LARGEST]
    found = {row.pk: row for some in chunks(possible, ROWS) for row in rows().defer("data").filter(pk__in=some)}
    return [found[pk] for pk in wanted if pk in found], [pk for pk in wanted if pk not in found]
