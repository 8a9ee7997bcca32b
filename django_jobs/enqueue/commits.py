"""Jobs that wait for the commit of the transaction in which they were enqueued."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import connections, transaction

from django_jobs.conf import Settings, get_settings
from django_jobs.enqueue import request as new_job
from django_jobs.enqueue.handle import DEFERRED
from django_jobs.enqueue.request import Ready, sent_later, state_of
from django_jobs.enqueue.sending import Batcher, Refused, ids_of
from django_jobs.exceptions import JobsError, StoreError, StoreUnavailable
from django_jobs.formatting import counted

logger = logging.getLogger("django_jobs")


class _Call(NamedTuple):
    """The jobs that one call left for the commit, and when (monotonic)."""

    ready: list[Ready]
    asked_at: float


class _Group:
    """The calls of one transaction that a rollback discards together: they share one callback."""

    def __init__(self, commit: _Commit) -> None:
        self.calls: list[_Call] = []
        self.callback = partial(send_after_commit, self.calls, commit)

    def waits(self, callbacks: Sequence[tuple[Any, ...]]) -> bool:
        """Return whether its callback is still pending.  It is not after a commit or a rollback of its savepoint."""
        return any(entry[1] is self.callback for entry in callbacks)


class _Commit:
    """What the commit callbacks of one connection share: a group per savepoint, the last group, the errors."""

    def __init__(self) -> None:
        self.groups: dict[frozenset[Any], _Group] = {}
        self.last: list[_Call] = []
        self.refused: list[JobsError] = []


_commits: WeakKeyDictionary[object, _Commit] = WeakKeyDictionary()


def wait_for_commit(ready: list[Ready], settings: Settings) -> None:
    """Send the jobs when the transaction that is open in this thread commits."""
    for each in ready:
        each.handle.state = DEFERRED
    connection = connections[settings.database]
    commit = _commits.setdefault(connection, _Commit())
    commit.refused.clear()  # from an earlier transaction whose last callback was rolled back; the log has them
    # Django itself uses these ids to decide what a rollback discards.
    savepoints = frozenset(connection.savepoint_ids)
    group = commit.groups.get(savepoints)
    if group is None or not group.waits(connection.run_on_commit):
        commit.groups = {at: kept for at, kept in commit.groups.items() if kept.waits(connection.run_on_commit)}
        group = commit.groups[savepoints] = _Group(commit)
        transaction.on_commit(group.callback, using=settings.database)
        commit.last = group.calls
    group.calls.append(_Call(ready, monotonic()))


def send_after_commit(calls: list[_Call], commit: _Commit) -> None:
    """Send the jobs of one group.  The transaction is committed, so all jobs are due now; every failure is logged, so
    that operators can act.

    Django stops at the first callback that raises; therefore an error is raised only after the transaction's last
    group.
    """
    away = next((error for error in commit.refused if isinstance(error, StoreUnavailable)), None)
    for refused, error in _send(list(_due(calls)), away):
        first = refused[0].handle
        logger.error(
            "Not enqueued after the commit: %s. The first is %s %s",
            *(counted(len(refused), "job"), first.name, first.id),
            exc_info=error,
        )
        commit.refused.append(error)
    if calls is commit.last and commit.refused:
        first_refused = commit.refused[0]
        commit.refused.clear()
        raise first_refused


def _due(calls: list[_Call]) -> Iterator[list[Ready]]:
    now = new_job.now_ms()
    for call in calls:
        # Skip cancelled and sent jobs: test tools may call the callbacks of a TestCase themselves.
        elapsed = int((monotonic() - call.asked_at) * 1000)
        ready = [
            each._replace(new=sent_later(each.new, elapsed)) for each in call.ready if each.handle.state == DEFERRED
        ]
        for each in ready:
            each.handle.state = state_of(each.new, now)
        if ready:
            yield ready


def _send(calls: Sequence[list[Ready]], away: StoreUnavailable | None) -> list[Refused]:
    """Send the jobs of several calls together, with one wait for an unreachable store, but refuse each job by itself.
    `away`: the error, if the store was just found unreachable.  Returns the refused jobs and why."""
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


def run_after_commit(action: Callable[[], object], what: str) -> None:
    """Do something that waited for a commit.  An error is logged, and does not keep other callbacks from running."""
    try:
        action()
    except JobsError:
        logger.exception("Not done after the commit: %s", what)


def after_commit(action: Callable[[], object], what: str, settings: Settings) -> None:
    """Have this done when the transaction that is open in this thread commits.  `what` says it in the log."""
    transaction.on_commit(partial(run_after_commit, action, what), using=settings.database)
