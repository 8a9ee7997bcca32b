"""Sends what was left in the outbox: entries of processes that died, and of a store that was away or full.

Any number of workers do it at the same time.  Where the database can lock rows and skip locked ones, each takes others;
elsewhere two may send the same entry.  A job is stored once in any case: the store knows its id for IDEMPOTENCY, and
no entry that is older is sent, unless somebody decides it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models import Q
from django.db.models.functions import Length
from django.utils import timezone

from django_jobs.conf import Settings, get_settings
from django_jobs.core import registry
from django_jobs.enqueueing.batching import Away, Batcher, Refused, needed_by, servers_of
from django_jobs.enqueueing.commits import PASSING
from django_jobs.enqueueing.handle import DEFERRED, DUPLICATE, JobHandle
from django_jobs.enqueueing.request import EncodedJob, NewJobRequest, now_ms, sent_later
from django_jobs.enqueueing.sending import settings_of
from django_jobs.exceptions import DuplicateJob, JobsError, QueueFull, StoreFull, StoreUnavailable
from django_jobs.outbox import Entry, EntryKind, UnreadableRow, age, is_waited_for, rows, unpack
from django_jobs.outbox.entries import ROWS, drop, tell_dropped
from django_jobs.outbox.entries import delete as delete_rows
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import in_batches
from django_jobs.workflows import batch as batches
from django_jobs.workflows import sending as workflows

logger = logging.getLogger("django_jobs.worker")

#: Errors after which no entry of the same server can be sent.
_OF_THE_STORE = (StoreUnavailable, StoreFull)
#: Entries that are looked at together.  Their data are read in parts of some MB.
PAGE = 1000
#: Seconds that an entry is left to the process that wrote it.
SPARE = 2.0
#: Seconds that one call works.
SLICE = 5.0


#: The pass whose last call had no time for the rest.
_unfinished: _Pass | None = None


def relay() -> int:
    """Send entries of the outbox for at most SLICE seconds, the oldest first.  Returns how many are done; call it again
    soon while that is not 0.

    Raises StoreError if nothing is done because the store, or a node of a Cluster, is away, and DatabaseError."""
    global _unfinished
    settings = get_settings()
    work = _unfinished if _unfinished is not None and _unfinished.settings is settings else _Pass(settings)
    _unfinished, work.done, work.until = None, 0, monotonic() + SLICE
    while work.page() and monotonic() < work.until:
        pass
    _unfinished = None if work.is_over else work
    if work.away and not work.done:
        raise next(iter(work.away.values()))
    return work.done


class _Pass:
    """One way through the outbox, in as many calls as it takes, so that entries that wait do not use up the time of all
    calls.  What it finds closed stays so until its end, so that no entry overtakes another of its queue."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.until, self.done, self.is_over = settings, 0.0, 0, False
        #: the row that was read last.
        self._after = 0
        #: the queues of the settings and of the entries; those that have no room, or are damaged, and the error: their
        #: entries wait.
        self._queues, self._closed = set(settings.queues), dict[str, JobsError]()
        #: servers that cannot be reached, or are full: what needs them waits.
        self.away: Away = {}

    def page(self) -> bool:
        """Send the next entries.  Returns whether there may be more."""
        with self._locking():
            rows = self._next()
            for some in in_batches(rows, lambda row: row.size, ROWS):
                self._send(self._with_data(some))
                if monotonic() > self.until:
                    break
            if ACTIVE and rows:
                crashpoint("outbox.relayed")
        was_last = len(rows) < PAGE and (not rows or self._after == rows[-1].pk)
        self._queues.update(row.queue for row in rows if row.kind == EntryKind.JOB)
        # With patterns, the entries not read yet may be of any other queue.  Workflows and ends of batches have none:
        # only a server that is away holds up all of them.
        are_closed = not self.settings.queues.patterns and all(map(self._is_closed, self._queues))
        self.is_over = was_last or (are_closed and self._is_away(frozenset({""})))
        return not self.is_over

    def _is_closed(self, queue: str) -> bool:
        return queue in self._closed or self._is_away(servers_of(queue))

    def _is_away(self, servers: frozenset[str]) -> bool:
        return any(known <= servers for known in self.away)

    def _locking(self) -> AbstractContextManager[None]:
        alias = self.settings.database
        can_skip = connections[alias].features.has_select_for_update_skip_locked
        return transaction.atomic(using=alias) if can_skip else nullcontext()

    def _rows(self) -> Any:
        return rows(self.settings.database)

    def _next(self) -> list[Any]:
        # Tokens begin with their time.  One in the future has the time of another clock, and may be of any age.
        now, spare = now_ms(), round(SPARE * 1000)
        just_now = Q(token__gte=f"{now - spare + 1:012x}", token__lt=f"{now + spare + 1:012x}")
        found = (
            self._rows()
            .filter(~just_now, is_held=False, id__gt=self._after)
            .exclude(queue__in=list(filter(self._is_closed, self._queues)))
        )
        if connections[self.settings.database].features.has_select_for_update_skip_locked:
            found = found.select_for_update(skip_locked=True)
        return list(found.order_by("id").annotate(size=Length("data")).defer("data")[:PAGE])

    def _with_data(self, some: Sequence[Any]) -> Iterator[Any]:
        """Yield these rows with their data, except those that were deleted since."""
        data = dict(self._rows().filter(pk__in=[row.pk for row in some]).values_list("pk", "data"))
        for row in some:
            self._after = row.pk
            if row.pk in data:
                row.data = data.pop(row.pk)
                yield row
                row.data = b""  # the page keeps its rows

    def _send(self, rows: Iterable[Any]) -> None:
        """Send these entries in their order, remove what is done, and note why the others stay."""
        done: list[int] = []
        jobs: list[tuple[Any, Entry]] = []
        try:
            for row in rows:
                if (reason := self._why_held(row)) is not None:
                    self._hold(row, reason)
                    continue
                try:
                    entry = unpack(row)
                except UnreadableRow as error:
                    self._hold(row, str(error))
                    continue
                if entry.kind == EntryKind.JOB:
                    jobs.append((row, entry))
                    continue
                self._send_jobs(jobs, done)
                jobs = []
                self._send_other(row, entry, done)
                if monotonic() > self.until:
                    break
            self._send_jobs(jobs, done)
        finally:
            if ACTIVE:
                crashpoint("outbox.relay_sent")
            if done:
                delete_rows(done, self.settings.database)
                self.done += len(done)

    def _send_jobs(self, jobs: Sequence[tuple[Any, Entry]], done: list[int]) -> None:
        refused: list[Refused] = []
        full = {queue for queue, error in self._closed.items() if isinstance(error, QueueFull)}
        batcher = Batcher(self.settings, refused, self.away, full)
        sent: list[tuple[Any, EncodedJob]] = []
        joining: dict[str, str] = {}  # queue with a limit → the batch that its unsent jobs join
        for row, entry in jobs:
            sent.append((row, ready := _ready(entry)))
            has_limit = settings_of(entry.queue, self.settings).max_length
            if has_limit and joining.setdefault(entry.queue, entry.batch) != entry.batch:
                batcher.send_rest()  # jobs of two batches go in two calls: the first are to get the room there is
                joining = {entry.queue: entry.batch}
            batcher.add(ready)
        batcher.send_rest()
        for some, error in list(refused):
            if len(some) > 1 and not isinstance(error, PASSING):  # a batch refuses new jobs, not those that it has
                refused.remove((some, error))
                for each in some:
                    batcher.add(each)
                    batcher.send_rest()
        self.away |= {needed_by(some): error for some, error in refused if isinstance(error, StoreFull)}
        equal = [entry for (_, entry), (_, each) in zip(jobs, sent, strict=True) if each.handle.state == DUPLICATE]
        if equal:
            try:
                tell_dropped(equal, DUPLICATE)
            except DatabaseError as error:  # of another database: these are sent again, and change nothing then
                logger.warning("Entries of the outbox that are duplicates wait for a database: %s", error)
                sent = [(row, each) for row, each in sent if each.handle.state != DUPLICATE]
        why = {id(each.handle): error for some, error in refused for each in some}
        for row, ready in sent:
            self._settle(row, why.get(id(ready.handle)), done)

    def _send_other(self, row: Any, entry: Entry, done: list[int]) -> None:
        error: JobsError | None = None
        servers = servers_of(f"~{entry.key}", also="steps")
        if self._is_away(servers):
            return
        try:
            if entry.kind == EntryKind.WORKFLOW:
                workflows.send_kept(entry)
            elif is_waited_for(entry.key, self.settings.database):
                return
            else:
                batches.close(get_store(), entry.key, entry.fields)
        except _OF_THE_STORE as found:
            self.away[servers] = found
            return
        except JobsError as found:
            error = found
        except (ValueError, TypeError, LookupError, AttributeError) as found:
            error = JobsError(f"Its data cannot be read: {found!r:.200}")
        self._settle(row, error, done)

    def _settle(self, row: Any, error: JobsError | None, done: list[int]) -> None:
        if error is None or isinstance(error, DuplicateJob):
            done.append(row.pk)
        elif isinstance(error, PASSING) and not isinstance(error, _OF_THE_STORE):
            if row.queue:
                self._closed[row.queue] = error
            self._note(row, str(error))
        elif not isinstance(error, PASSING):
            self._hold(row, str(error))

    def _why_held(self, row: Any) -> str | None:
        if is_old(row):
            return (
                "It is older than IDEMPOTENCY, so the store may have forgotten its id: if it was sent before, it would "
                "run twice. Send it again if you know that it did not run, or delete it."
            )
        if row.kind == EntryKind.JOB and row.queue not in self.settings.queues:
            return f"Queue {row.queue!r} is not in DJANGO_JOBS['QUEUES']. Add it there, and send the entry again."
        return None

    def _hold(self, row: Any, reason: str) -> None:
        self._rows().filter(pk=row.pk).update(is_held=True, reason=reason)

    def _note(self, row: Any, reason: str) -> None:
        if row.reason != reason:  # a row that waits for hours is not written again in each pass
            self._rows().filter(pk=row.pk).update(reason=reason)


class _KeptBatch:
    """The batch that a job of the outbox joins."""

    def __init__(self, entry: Entry) -> None:
        self.id, self._fields = entry.batch, entry.fields

    def new_fields(self) -> Any:
        return self._fields


def _ready(entry: Entry) -> EncodedJob:
    """Return the job as an enqueue sends it.  Its type may be unknown here: only receivers of signals need it."""
    new: Any = entry.new
    request = NewJobRequest(registry.find(entry.name), (), {}, entry.queue, 0)  # type: ignore[arg-type]
    request.on_conflict, request.block_timeout, request.is_kept = new.on_conflict, 0, True
    request.id = new.id if entry.is_own_id else None
    request.raise_when_full = not entry.is_optional
    request.batch = _KeptBatch(entry) if entry.batch else None
    sent = sent_later(new, max(0, now_ms() - entry.at))._replace(asked_at=entry.at)
    return EncodedJob(request, sent, JobHandle(new.id, entry.name, entry.queue, DEFERRED))


def is_old(row: Any) -> bool:
    """Return whether the store may have forgotten the id: if the entry was sent before, it runs twice."""
    return age(row) >= get_settings().idempotency


def send_again(ids: Iterable[int]) -> int:
    """Let workers send these held entries, however old they are.  Returns how many there are.

    Only an entry that is too old counts from now on: another one that was sent before is not forgotten yet."""
    table, sent = rows(get_settings().database), 0
    for row in table.filter(pk__in=list(ids)).defer("data"):
        changes = {"fresh_at": timezone.now()} if is_old(row) else {}
        sent += table.filter(pk=row.pk).update(is_held=False, reason="", **changes)  # one by one: see outbox `delete`
    return sent


def delete(ids: Iterable[int]) -> int:
    """Delete these entries: what they hold is never sent.  Returns how many there were."""
    alias = get_settings().database
    return drop(rows(alias).filter(pk__in=list(ids)), alias)
