"""The only way in: every call that enqueues ends in one of the functions `submit…`.

bound → enqueue middleware → encoded → now, or when the transaction commits → store → signal → handle

Long because all ways in share these steps, and one reads them together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.db import connections
from django.utils.module_loading import import_string

from django_jobs.conf import Settings, get_settings, store_in_use
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.discovery import remedy
from django_jobs.core.options.checks import tags_of_call
from django_jobs.core.values import Added
from django_jobs.enqueueing import captures, membership
from django_jobs.enqueueing import request as new_job
from django_jobs.enqueueing.batching import Away, Batcher, Refused, ids_of
from django_jobs.enqueueing.call_options import check_id, check_request, moment
from django_jobs.enqueueing.commits import wait_for_commit
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NO_KEY, EncodedJob, NewJobRequest, encode, request_for, state_of
from django_jobs.enqueueing.sending import send_one
from django_jobs.exceptions import JobsError, QueueFull, StoreError

logger = logging.getLogger("django_jobs")

#: Jobs for which the warning that workers may not find them was logged.
_warned: set[str] = set()

GetHandle = Callable[[NewJobRequest], JobHandle]
Call = TypeVar("Call")


def submit(request: NewJobRequest) -> JobHandle:
    """Enqueue one job and return its handle.  Raises errors in the request, QueueFull, DuplicateJob or a StoreError."""
    settings = get_settings()
    return (
        through_middleware(settings.enqueue_middleware, _add)(request) if settings.enqueue_middleware else _add(request)
    )


def submit_many(
    calls: Iterable[Call], make: Callable[[Call], NewJobRequest], answered: Collection[str] = ()
) -> list[JobHandle]:
    """Enqueue the job that `make` returns for each call, in batches.  `answered`: ids that an earlier call sent.

    All calls are checked before the first is sent, unless they are an iterator: that is sent while it is read, so that
    only jobs of unsent batches, and those that wait for a commit, are in memory.  An error in a call then leaves the
    batches before it stored, and says so.  A StoreError contains the ids of all calls.
    """
    settings = get_settings()
    handles: list[JobHandle] = []
    waiting: list[EncodedJob] = []
    rest = iter(calls)
    ready = _each_ready(map(make, rest), settings, handles, answered)
    if not isinstance(calls, Iterator):
        ready = iter(list(ready))
    batcher = Batcher(settings)
    try:
        try:
            for each in ready:
                waits = each.request.is_kept or waits_for_commit(each.request.on_commit, settings)
                (waiting.append if waits else batcher.add)(each)
            batcher.send_rest()
        except Exception:
            batcher.finish()  # the jobs of the last batch are stored, whatever is wrong with a later call
            raise
        except BaseException:
            with suppress(StoreError):  # an interrupt stays one
                batcher.finish()
            raise
    except StoreError as error:
        error.job_ids = ids_of(handles)
        error.job_ids.extend(new_job.new_id(new_job.now_ms()) for _ in rest)
        raise
    except JobsError as error:
        if isinstance(calls, Iterator) and batcher.accepted and not isinstance(error, QueueFull):
            error.add_note(
                f"Jobs of this call that are stored: {batcher.accepted}. The items of an iterator are sent as they "
                "come. Pass a list if one wrong item must keep all of them out."
            )
        raise
    if waiting:
        wait_for_commit(waiting, settings)
    return handles


def submit_separately(
    requests: Iterable[NewJobRequest], away: Away | None = None, full: set[str] | None = None
) -> list[JobHandle | JobsError]:
    """Enqueue jobs in batches, and refuse each one by itself: the list has the error that `submit` would raise in the
    place of a refused job.  None waits for a commit.

    A queue with a limit refuses all jobs of a batch for which it has no room; with `full`, as in Batcher, only those
    that find none.  Raises StoreError: some jobs may then be stored, and the caller sends all of them again under the
    same ids.  With `away`, as in Batcher: lists it, too."""
    settings = get_settings()
    ready: list[EncodedJob] = []
    one = _through_all(settings, ready)
    answers: list[JobHandle | JobsError] = []
    for request in requests:
        try:
            answers.append(one(request))
        except JobsError as error:
            answers.append(error)
    refused: list[Refused] = []
    batcher = Batcher(settings, refused, away, full)
    for each in ready:
        batcher.add(each)
    batcher.send_rest()
    errors = {id(each.handle): error for jobs, error in refused for each in jobs}
    unsent = next((error for error in errors.values() if isinstance(error, StoreError)), None)
    if unsent is not None and away is None:
        raise unsent
    return [errors.get(id(answer), answer) for answer in answers]


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
    schedule_run: tuple[str, int] | None = None,
    meta: dict[str, Any] | None = None,
    digest: str | None = None,
    tags: Sequence[str] = (),
) -> JobHandle:
    """Enqueue a registered job whose name is data: for commands, the HTTP API and schedules.

    `schedule_run` is (schedule id, scheduled time in ms): the store adds the job only if that schedule has not run
    since; the handle's `added` shows it.  `tags` are added to those of the job type.  Raises UnknownJob and
    the errors of `submit`.
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
    if tags:
        request.tags = tags_of_call(name, request.tags, tags)
    request.on_commit, request.schedule_run, request.meta, request.digest = on_commit, schedule_run, meta, digest
    return submit(request)


# -- from the request to the encoded job -------------------------------------------


def _add(request: NewJobRequest) -> JobHandle:
    settings = get_settings()
    ready = make_ready(request, settings)
    if request.is_kept or waits_for_commit(request.on_commit, settings):
        wait_for_commit([ready], settings)
    else:
        send_one(ready, settings)
    return ready.handle


def wants_commit(on_commit: bool | None, settings: Settings) -> bool:
    """Return what the call says of `on_commit`; None: what the setting says."""
    return settings.on_commit if on_commit is None else on_commit


def waits_for_commit(on_commit: bool | None, settings: Settings) -> bool:
    """Return whether the caller is inside atomic() and what is enqueued here should wait for the commit."""
    if not wants_commit(on_commit, settings) or not in_transaction(settings.database):
        return False
    return not (settings.eager and captures.never_commits(settings.database))


def is_kept(on_commit: bool | None, settings: Settings) -> bool:
    """Return whether what is enqueued here is written into the outbox first: it waits for a commit, or OUTBOX is
    "always".  Nothing is if the caller asks the store now, or where jobs run at once (EAGER)."""
    if not settings.outbox or not wants_commit(on_commit, settings) or settings.eager:
        return False
    return settings.outbox == "always" or in_transaction(settings.database)


def in_transaction(alias: str) -> bool:
    """Is this thread inside atomic()?  Opens no connection, so it works where there is no database at all."""
    return connections[alias].in_atomic_block


def _each_ready(
    requests: Iterable[NewJobRequest], settings: Settings, handles: list[JobHandle], answered: Collection[str]
) -> Iterator[EncodedJob]:
    """Yield what is to be sent.  Each request adds to `handles` what its caller gets."""
    made: list[EncodedJob] = []
    one = _through_all(settings, made)
    for request in requests:
        handles.append(one(request))
        for each in made:
            if answered and each.request.id in answered:
                each.handle.added = Added.EXISTS
            else:
                yield each
        made.clear()


def _through_all(settings: Settings, ready: list[EncodedJob]) -> GetHandle:
    """Return the function that leads a request through the middleware, and adds what comes out to `ready`."""

    def collect(request: NewJobRequest) -> JobHandle:
        ready.append(make_ready(request, settings))
        return ready[-1].handle

    return through_middleware(settings.enqueue_middleware, collect)


def make_ready(request: NewJobRequest, settings: Settings) -> EncodedJob:
    """Return the encoded job and its handle.  Raises every error of the request."""
    if request.definition.is_late:
        warn_of_late(request.definition, settings)
    if (batch := membership.current.get()) is not None:
        request.batch = batch
    if settings.outbox and request.outbox and is_kept(request.on_commit, settings):
        # A job of the batch that adds others is tried again if they are refused: then the batch does not end before.
        request.is_kept = request.batch is None or bool(request.batch.new_fields())
    now = new_job.now_ms()
    request.sent = new = encode(request, settings, now)
    return EncodedJob(request, new, JobHandle(new.id, request.definition.name, request.queue, state_of(new, now)))


def warn_of_late(definition: JobDefinition, settings: Settings) -> None:
    """Warn once per job that its jobs would wait silently for a worker that knows the name.  No warning if the jobs
    stay in this process."""
    if definition.name in _warned or settings.eager or store_in_use() == "memory":
        return
    _warned.add(definition.name)
    if not apps.is_installed("django_jobs"):
        logger.warning(
            "django_jobs is not in INSTALLED_APPS: there is no `manage.py runworkers`, and nothing runs %s.",
            definition.name,
        )
        return
    logger.warning(
        "Workers may not find %s: its module %s is not imported when the project starts. Its jobs wait. %s",
        definition.name,
        definition.func.__module__,
        remedy(definition.func.__module__),
    )


# -- enqueue middleware --------------------------------------------------------------


@lru_cache(maxsize=32)
def _middleware(paths: tuple[str, ...]) -> tuple[Callable[[GetHandle], GetHandle], ...]:
    return tuple(import_string(path) for path in paths)


def through_middleware(paths: tuple[str, ...], innermost: GetHandle) -> GetHandle:
    """Wrap `innermost` in the middleware, the first outermost; each must return a handle.  What they have set is
    checked as what a caller says."""

    def checked(request: NewJobRequest) -> JobHandle:
        check_request(request)
        return innermost(request)

    chain = checked if paths else innermost
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
