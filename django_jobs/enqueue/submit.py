"""The only way in: every call that enqueues ends in `submit` or `submit_many`.

bound → enqueue middleware → encoded → now, or when the transaction commits → store → signal → handle
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.db import connections, transaction
from django.utils.module_loading import import_string

from django_jobs.conf import Settings, get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.discovery import remedy
from django_jobs.core.values import Added, NewJob, State
from django_jobs.enqueue import request as new_job
from django_jobs.enqueue.handle import DEFERRED, JobHandle
from django_jobs.enqueue.request import NO_KEY, NewJobRequest, check_id, encode, moment, sent_later
from django_jobs.enqueue.send import Ready, send, send_calls, send_one
from django_jobs.exceptions import JobsError, StoreUnavailable

logger = logging.getLogger("django_jobs")

#: Jobs for which the warning that workers may not find them was logged.
_warned: set[str] = set()

GetHandle = Callable[[NewJobRequest], JobHandle]


def submit(request: NewJobRequest) -> JobHandle:
    """Enqueue one job and return its handle.  Raises errors in the request, QueueFull, DuplicateJob or a StoreError."""
    settings = get_settings()
    return (
        _through_middleware(settings.enqueue_middleware, _add)(request)
        if settings.enqueue_middleware
        else _add(request)
    )


def submit_many(requests: Iterable[NewJobRequest], answered: Collection[str] = ()) -> list[JobHandle]:
    """Enqueue jobs with one call to the store per queue and MAX_BATCH.  Stores nothing if one cannot be encoded.

    All ids are fixed before the first call; a StoreError contains them.  `answered`: ids that an earlier call sent.
    """
    settings = get_settings()
    ready: list[Ready] = []

    def collect(request: NewJobRequest) -> JobHandle:
        made = _make_ready(request, settings)
        if request.id in answered:
            made.handle.added = Added.EXISTS
        else:
            ready.append(made)
        return made.handle

    one = _through_middleware(settings.enqueue_middleware, collect) if settings.enqueue_middleware else collect
    handles = [one(request) for request in requests]
    for on_commit in (False, True):
        chosen = [each for each in ready if _waits_for_commit(each.request, settings) is on_commit]
        if chosen and on_commit:
            _on_commit(chosen, settings)
        elif chosen:
            send(chosen)
    return handles


def enqueue_by_name(
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    priority: int | None = None,
    job_id: str | None = None,
    run_at: datetime | None = None,
    expires_at: datetime | None = None,
    unique_key: Any = NO_KEY,
    on_commit: bool | None = None,
    fire: tuple[str, int] | None = None,
    meta: dict[str, Any] | None = None,
) -> JobHandle:
    """Enqueue a registered job whose name is data: for commands, the HTTP API and schedules.

    `fire` is (schedule id, fire time in ms): the store adds the job only if that schedule has not fired since; the
    handle's `added` shows it.  Raises UnknownJob and the errors of `submit`.
    """
    definition = registry.get(name)
    request = request_for(definition, list(args), dict(kwargs or {}))
    if queue is not None:
        request.queue = queue
    if priority is not None:
        request.priority = priority
    if job_id is not None:
        request.id = check_id(job_id)
    if run_at is not None:
        request.run_at = moment(run_at, "run_at")
    if expires_at is not None:
        request.expires_at = moment(expires_at, "expires_at")
    if unique_key is not NO_KEY and unique_key is not None:
        request.unique = request.unique or "queued"
        request.unique_key = unique_key
    request.on_commit, request.fire, request.meta = on_commit, fire, meta
    return submit(request)


def request_for(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJobRequest:
    """Return the request for `job.enqueue(*args, **kwargs)`, from the definition alone."""
    options = definition.options
    request = NewJobRequest(definition, args, kwargs, options.queue, options.priority)
    # unique_on without unique is for enqueue_unique().
    request.unique, request.unique_on, request.on_conflict = options.unique, options.unique_on, options.on_conflict
    return request


# -- one job -------------------------------------------------------------------


def _add(request: NewJobRequest) -> JobHandle:
    settings = get_settings()
    ready = _make_ready(request, settings)
    if _waits_for_commit(request, settings):
        _on_commit([ready], settings)
    else:
        send_one(ready, settings)
    return ready.handle


def _make_ready(request: NewJobRequest, settings: Settings) -> Ready:
    if request.definition.is_late:
        _warn_of_late(request.definition, settings)
    now = new_job.now_ms()
    request.sent = new = encode(request, settings, now)
    return Ready(request, new, JobHandle(new.id, request.definition.name, request.queue, _state(new, now)))


def _warn_of_late(definition: JobDefinition, settings: Settings) -> None:
    """Warn once per job that its jobs would wait silently for a worker that knows the name.  No warning if the jobs
    stay in this process."""
    if definition.name in _warned or settings.store == "memory" or settings.eager:
        return
    _warned.add(definition.name)
    logger.warning(
        "Workers may not find %s: its module %s is not imported when the project starts, and its jobs wait. %s",
        definition.name,
        definition.func.__module__,
        remedy(definition.func.__module__),
    )


def _state(new: NewJob, now: int) -> State:
    return State.SCHEDULED if new.run_in or new.run_at > now else State.QUEUED


@lru_cache(maxsize=32)
def _middleware(paths: tuple[str, ...]) -> tuple[Callable[[GetHandle], GetHandle], ...]:
    return tuple(import_string(path) for path in paths)


def _through_middleware(paths: tuple[str, ...], innermost: GetHandle) -> GetHandle:
    """Wrap `innermost` in the middleware, the first outermost; each must return a handle."""
    chain = innermost
    for path, middleware in zip(reversed(paths), reversed(_middleware(paths)), strict=True):
        try:
            layer = middleware(chain)
        except MiddlewareNotUsed:
            continue
        if not callable(layer):
            raise ImproperlyConfigured(f"Enqueue middleware {path} returned {layer!r}: it must return a callable.")
        chain = partial(_must_return_a_handle, path, layer)
    return chain


def _must_return_a_handle(path: str, layer: GetHandle, request: NewJobRequest) -> JobHandle:
    handle = layer(request)
    if not isinstance(handle, JobHandle):
        raise TypeError(
            f"Enqueue middleware {path} returned {handle!r}: it must return the handle of get_next(new_job)."
        )
    return handle


# -- transactions ---------------------------------------------------------------


def _waits_for_commit(request: NewJobRequest, settings: Settings) -> bool:
    """Return whether the caller is inside atomic() and the job should wait for the commit."""
    wanted = settings.on_commit if request.on_commit is None else request.on_commit
    return wanted and in_transaction(settings.database)


def in_transaction(alias: str) -> bool:
    """Is this thread inside atomic()?  Opens no connection, so it works where there is no database at all."""
    return connections[alias].in_atomic_block


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


def _on_commit(ready: list[Ready], settings: Settings) -> None:
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
    for refused, error in send_calls(list(_due(calls)), away):
        first = refused[0].handle
        logger.error(
            "%d job(s) were not enqueued after the commit, the first is %s %s",
            *(len(refused), first.name, first.id),
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
            each.handle.state = _state(each.new, now)
        if ready:
            yield ready
