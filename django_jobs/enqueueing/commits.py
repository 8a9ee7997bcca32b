"""What waits for the commit of the transaction in which it was enqueued: jobs, workflows, ends of batches.

With OUTBOX, the transaction also writes it into the database.  Its row is removed when the store has answered; what
keeps its row, because of a crash or because the store is away, is sent by a worker (operations/relay.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import monotonic
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

from django.db import Error as DatabaseFault
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import outbox
from django_jobs.conf import Settings, get_settings
from django_jobs.core.values import State
from django_jobs.enqueueing import request as new_job
from django_jobs.enqueueing.batching import Away, Batcher, Refused, ids_of, needed_by, servers_of
from django_jobs.enqueueing.captures import in_test_case
from django_jobs.enqueueing.handle import DEFERRED, DUPLICATE, FULL
from django_jobs.enqueueing.request import EncodedJob, sent_later, state_of
from django_jobs.exceptions import JobsError, QueueFull, StoreError, StoreUnavailable
from django_jobs.formatting import counted
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint

logger = logging.getLogger("django_jobs")

#: What passes: an entry of the outbox is sent later.
PASSING = (StoreError, QueueFull)
#: Seconds for which commits leave everything in the outbox, after the store could not be reached.
_PAUSE = 1.0
#: Servers of the store → until when commits do not ask them (monotonic).
_away_until: dict[frozenset[str], float] = {}
#: about what stays in the outbox; seconds.
_kept = Complaints(60.0)


class _Call(NamedTuple):
    """The jobs that one call left for the commit, and when (monotonic)."""

    ready: list[EncodedJob]
    asked_at: float


class _Group(NamedTuple):
    """The calls of one transaction that a rollback discards together, and the callback that they share, as long as
    Django has it."""

    calls: list[_Call]
    callback: ReferenceType[Callable[[], None]]


class _Commit:
    """What the commit callbacks of one transaction share: their groups in the order of the callbacks, the group that
    takes the next call of each savepoint, the errors, the servers that are away."""

    def __init__(self) -> None:
        self.all: list[_Group] = []
        self.open: dict[frozenset[Any], _Group] = {}
        self.refused: list[JobsError] = []
        self.away: Away = {}

    def is_last(self, calls: list[_Call]) -> bool:
        """Return whether no callback comes after that of these calls.  Those that were rolled back are gone."""
        there = (each for each in reversed(self.all) if each.calls is calls or each.callback() is not None)
        return next(there).calls is calls


#: The open transaction of each connection that had one.
_commits: WeakKeyDictionary[object, _Commit] = WeakKeyDictionary()


def wait_for_commit(ready: list[EncodedJob], settings: Settings) -> None:
    """Send the jobs when the transaction that is open in this thread commits; with OUTBOX "always", one is opened."""
    for each in ready:
        each.handle.state = DEFERRED
    with _transaction(settings):
        _keep([each for each in ready if each.request.is_kept], settings)
        _register(ready, settings)


def _transaction(settings: Settings) -> AbstractContextManager[None]:
    if connections[settings.database].in_atomic_block:
        return nullcontext()
    return transaction.atomic(using=settings.database)


def _keep(ready: list[EncodedJob], settings: Settings) -> None:
    """Write these jobs into the outbox."""
    if not ready:
        return
    now = new_job.now_ms()
    entries = []
    for each in ready:
        token = new_job.new_id(now)
        each.handle.kept = outbox.Kept(token, settings.database)
        each.request.block_timeout = 0  # the outbox waits for room
        batch = each.request.batch
        of_batch = (batch.id, batch.new_fields()) if batch is not None else ("", {})
        job = (outbox.EntryKind.JOB, each.new.id, each.handle.name, each.handle.queue, each.new)
        own, optional = each.request.id is not None, not each.request.raise_when_full
        entries.append(outbox.Entry(*job, *of_batch, now, is_own_id=own, is_optional=optional, token=token))
    outbox.write(entries, settings.database)


def _register(ready: list[EncodedJob], settings: Settings) -> None:
    connection = connections[settings.database]
    # Django itself uses these ids to decide what a rollback discards.
    savepoints = frozenset(connection.savepoint_ids)
    commit = _commits.get(connection)
    group = commit.open.get(savepoints) if commit is not None else None
    # A test may run only the callbacks of a part of its transaction: there, each call has its own.
    if group is None or in_test_case(settings.database) or not _waits_in(connection.run_on_commit, group):
        group = _new_group(connection, commit, savepoints)
    group.calls.append(_Call(ready, monotonic()))


def _new_group(connection: BaseDatabaseWrapper, commit: _Commit | None, savepoints: frozenset[Any]) -> _Group:
    while commit is not None and commit.all and commit.all[-1].callback() is None:
        commit.all.pop()  # it was rolled back
    # The newest group has one of the last callbacks, and if it waits, no other is looked at.
    if commit is None or not any(_waits_in(reversed(connection.run_on_commit), each) for each in reversed(commit.all)):
        commit = _commits[connection] = _Commit()  # a new transaction
    calls: list[_Call] = []
    callback = partial(send_after_commit, calls, commit)
    group = commit.open[savepoints] = _Group(calls, ref(callback))
    commit.all.append(group)
    commit.away.clear()
    connection.on_commit(callback)
    return group


def _waits_in(callbacks: Iterable[tuple[Any, ...]], group: _Group) -> bool:
    """Return whether its callback is still pending.  It is not after a commit or a rollback of its savepoint."""
    callback = group.callback()
    return callback is not None and any(entry[1] is callback for entry in callbacks)


def send_after_commit(calls: list[_Call], commit: _Commit) -> None:
    """Send the jobs of one group.  The transaction is committed, so all jobs are due now; what fails is logged.

    Django stops at the first callback that raises: an error is raised only after the transaction's last group."""
    if ACTIVE:
        crashpoint("outbox.committed")
    for jobs, error in _send(list(_due(calls)), commit.away):
        refused = [each for each in jobs if not _stays(each, error)]
        if len(refused) < len(jobs):
            _log_kept(counted(len(jobs) - len(refused), "job"), error, *commit.away)
        if not refused:
            continue
        for each in refused:  # only the store knows what became of the others
            if each.handle.added is None and not isinstance(error, StoreError):
                each.handle.state = State.CANCELLED
        first = refused[0].handle
        logger.error(
            "Not enqueued after the commit: %s. The first is %s %s",
            *(counted(len(refused), "job"), first.name, first.id),
            exc_info=error,
        )
        _tell_never_added(refused)
        commit.refused.append(error)
    if ACTIVE:
        crashpoint("outbox.sent")
    kept = [(each.handle, each.handle.kept) for call in calls for each in call.ready if each.handle.kept is not None]
    for handle, row in kept:
        row.is_committed = handle.state == DEFERRED
    _remove([row.token for _, row in kept if not (row.is_committed or row.is_leaving)])
    if commit.refused and commit.is_last(calls):
        first_refused = commit.refused[0]
        commit.refused.clear()
        raise first_refused


def _tell_never_added(refused: list[EncodedJob]) -> None:
    states = (FULL, DUPLICATE, State.CANCELLED)
    lost = [each for each in refused if each.handle.state in states]
    try:
        outbox.tell_never_added(outbox.NeverAdded(each.handle.queue, each.new, each.handle.state) for each in lost)
    except DatabaseFault:
        logger.exception("The rows of %s do not show that the jobs were not added", counted(len(refused), "job"))


def _stays(each: EncodedJob, error: JobsError) -> bool:
    """Return whether the job stays in the outbox, because it may be sent later."""
    if not each.request.is_kept or not isinstance(error, PASSING):
        return False
    each.handle.state = DEFERRED
    return True


def _log_kept(what: str, error: JobsError, *away: frozenset[str]) -> None:
    _away_until.update(dict.fromkeys(away, monotonic() + _PAUSE))
    if _kept.is_new(error):
        logger.warning("Not enqueued after the commit: %s.  A worker sends it from the outbox later: %s", what, error)


def _remove(tokens: Collection[str]) -> None:
    """Remove from the outbox what the store has.  If that fails, a worker sends it again, to no effect."""
    if tokens:
        try:
            outbox.remove(tokens, get_settings().database)
        except DatabaseFault:
            what = counted(len(tokens), "entry", "entries")
            logger.exception("The outbox keeps %s that the store has: a worker removes it", what)


def _is_away(servers: frozenset[str]) -> bool:
    now = monotonic()
    return any(until > now and known <= servers for known, until in list(_away_until.items()))


def _due(calls: list[_Call]) -> Iterator[list[EncodedJob]]:
    now = new_job.now_ms()
    for call in calls:
        # Skip cancelled and sent jobs: test tools may call the callbacks of a TestCase themselves.
        elapsed = int((monotonic() - call.asked_at) * 1000)
        ready = [
            each._replace(new=sent_later(each.new, elapsed))
            for each in call.ready
            if _waits(each) and not (_away_until and each.request.is_kept and _is_away(needed_by([each])))
        ]
        for each in ready:
            each.handle.state = state_of(each.new, now)
        if ready:
            yield ready


def _waits(each: EncodedJob) -> bool:
    """Return whether the job was not cancelled, or the block that cancelled it was rolled back."""
    try:
        each.handle.is_leaving(at_commit=True)
    except DatabaseFault:
        logger.exception("The outbox cannot be read: a worker sends %s if it was not cancelled", each.handle)
    return each.handle.state == DEFERRED


def _send(calls: Sequence[list[EncodedJob]], away: Away) -> list[Refused]:
    """Send the jobs of several calls together, with one wait for an unreachable server, but refuse each job by itself.
    `away`: as in Batcher.  Returns the refused jobs and why."""
    refused: list[Refused] = []
    batcher = Batcher(get_settings(), refused, away)
    for call in calls:
        for each in call:
            batcher.add(each)
        batcher.end_call()
    batcher.send_rest()
    ids = ids_of(each.handle for call in calls for each in call)
    for _, error in refused:
        if isinstance(error, StoreError) and not error.job_ids:
            error.job_ids = ids
    return refused


def run_after_commit(action: Callable[[], object], what: str, entry: outbox.Entry | None = None) -> None:
    """Do something that waited for a commit.  An error is logged, and does not keep other callbacks from running.

    `entry`: what the outbox has of it; it stays there while the store is away, or jobs of the batch that ends are."""
    if ACTIVE:
        crashpoint("outbox.committed")
    if entry is not None and (_is_away(servers := servers_of(f"~{entry.key}", also="steps")) or _is_early(entry)):
        return
    try:
        action()
    except JobsError as error:
        if entry is not None and isinstance(error, PASSING):
            _log_kept(what, error, *([servers] if isinstance(error, StoreUnavailable) else []))
            return
        logger.exception("Not done after the commit: %s", what)
    if entry is not None:
        _remove([entry.token])


def _is_early(entry: outbox.Entry) -> bool:
    if entry.kind != outbox.EntryKind.CLOSE:
        return False
    try:
        return outbox.is_waited_for(entry.key, get_settings().database)
    except DatabaseFault:
        logger.exception("The outbox cannot be read: a worker ends batch %s", entry.key)
        return True


def after_commit(
    action: Callable[[], object], what: str, settings: Settings, entry: outbox.Entry | None = None
) -> None:
    """Have this done when the transaction that is open in this thread commits.  `what` says it in the log.

    `entry`: write this into the outbox."""
    with _transaction(settings):
        if entry is not None:
            outbox.write([entry], settings.database)
        transaction.on_commit(partial(run_after_commit, action, what, entry), using=settings.database)
