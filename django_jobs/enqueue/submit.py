"""The only way in: every call that enqueues ends in `submit` or one of the `submit_…` for many.

bound → enqueue middleware → encoded → now, or when the transaction commits → store → signal → handle

Long because a request has one way to the store: what an answer means to handles, receivers and callers is decided here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.db import connections
from django.utils.module_loading import import_string

from django_jobs.conf import QueueSettings, Settings, get_settings, store_in_use
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.discovery import remedy
from django_jobs.core.options import tags_of_call
from django_jobs.core.values import Added, JobInfo, NewJob
from django_jobs.enqueue import commits, membership
from django_jobs.enqueue import request as new_job
from django_jobs.enqueue.handle import DUPLICATE, FULL, JobHandle
from django_jobs.enqueue.request import NO_KEY, NewJobRequest, Ready, check_id, encode, moment, state_of
from django_jobs.exceptions import (
    DuplicateJob,
    JobIds,
    JobsError,
    QueueFull,
    StoreError,
    StoreUnavailable,
)
from django_jobs.signals import job_enqueued
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import ADDED_BYTES, MAX_BATCH

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: Shortest and longest pause between two tries at a full queue, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25

logger = logging.getLogger("django_jobs")

#: Jobs for which the warning that workers may not find them was logged.
_warned: set[str] = set()

GetHandle = Callable[[NewJobRequest], JobHandle]
Call = TypeVar("Call")
#: Waits for what the store says of each job of a batch.
Answers = Callable[[], list[Added]]


def submit(request: NewJobRequest) -> JobHandle:
    """Enqueue one job and return its handle.  Raises errors in the request, QueueFull, DuplicateJob or a StoreError."""
    settings = get_settings()
    return (
        through_middleware(settings.enqueue_middleware, _add)(request) if settings.enqueue_middleware else _add(request)
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

    one = through_middleware(settings.enqueue_middleware, collect) if settings.enqueue_middleware else collect
    handles = [one(request) for request in requests]
    for on_commit in (False, True):
        chosen = [each for each in ready if _waits_for_commit(each.request, settings) is on_commit]
        if chosen and on_commit:
            commits.wait_for_commit(chosen, settings, send_calls)
        elif chosen:
            send(chosen)
    return handles


def submit_separately(requests: Iterable[NewJobRequest]) -> list[JobHandle | JobsError]:
    """Enqueue jobs with one call to the store per queue and batch, and refuse each one by itself: the list has the
    error that `submit` would raise in the place of a refused job.  None waits for a commit.

    A queue with a limit refuses all jobs of a batch for which it has no room.  Raises StoreError: some jobs may then be
    stored, and the caller sends all of them again under the same ids."""
    settings = get_settings()
    ready: list[Ready] = []

    def collect(request: NewJobRequest) -> JobHandle:
        ready.append(_make_ready(request, settings))
        return ready[-1].handle

    one = through_middleware(settings.enqueue_middleware, collect) if settings.enqueue_middleware else collect
    answers: list[JobHandle | JobsError] = []
    for request in requests:
        try:
            answers.append(one(request))
        except JobsError as error:
            answers.append(error)
    refused: dict[int, JobsError] = {}
    for name, batches in _batches([ready], settings).items():
        for batch in batches:
            refused.update({id(each.handle): error for some, error in _send_and_note(name, batch) for each in some})
    return [refused.get(id(answer), answer) for answer in answers]


def submit_each(calls: Iterator[Call], make: Callable[[Call], NewJobRequest]) -> list[JobHandle]:
    """Enqueue the job that `make` returns for each call, in the same batches as `submit_many`, while the calls come:
    only jobs of unsent batches, and those that wait for a commit, are in memory.

    An error in a call leaves the batches before it stored, and says so.  A StoreError contains the ids of all calls.
    """
    settings = get_settings()
    made: list[Ready] = []
    waiting: list[Ready] = []
    handles: list[JobHandle] = []
    batches = _Batches(settings)

    def collect(request: NewJobRequest) -> JobHandle:
        made.append(_make_ready(request, settings))
        return made[-1].handle

    one = through_middleware(settings.enqueue_middleware, collect) if settings.enqueue_middleware else collect
    try:
        try:
            for call in calls:
                handles.append(one(make(call)))
                for each in made:
                    (waiting.append if _waits_for_commit(each.request, settings) else batches.add)(each)
                made.clear()
            batches.send_rest()
        except Exception:
            batches.finish()  # the jobs of the last batch are stored, whatever is wrong with a later call
            raise
        except BaseException:
            with suppress(StoreError):  # an interrupt stays one
                batches.finish()
            raise
    except StoreError as error:
        answered = frozenset(handle.id for handle in handles if handle.added is not None)
        error.job_ids = JobIds(handle.id for handle in handles)
        error.job_ids.extend(new_job.new_id(new_job.now_ms()) for _ in calls)
        error.job_ids.answered = answered
        raise
    except JobsError as error:
        if batches.accepted and not isinstance(error, QueueFull):
            error.add_note(
                f"Jobs of this call that are stored: {batches.accepted}. The items of an iterator are sent as they "
                "come. Pass a list if one wrong item must keep all of them out."
            )
        raise
    if waiting:
        commits.wait_for_commit(waiting, settings, send_calls)
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
    schedule_run: tuple[str, int] | None = None,
    meta: dict[str, Any] | None = None,
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
    request.on_commit, request.schedule_run, request.meta = on_commit, schedule_run, meta
    return submit(request)


def request_for(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJobRequest:
    """Return the request for `job.enqueue(*args, **kwargs)`, from the definition alone."""
    options = definition.options
    request = NewJobRequest(definition, args, kwargs, options.queue, options.priority)
    # unique_on without unique is for enqueue_unique().
    request.unique, request.unique_on, request.on_conflict = options.unique, options.unique_on, options.on_conflict
    request.tags = options.tags
    return request


# -- one job -------------------------------------------------------------------


def _add(request: NewJobRequest) -> JobHandle:
    settings = get_settings()
    ready = _make_ready(request, settings)
    if _waits_for_commit(request, settings):
        commits.wait_for_commit([ready], settings, send_calls)
    else:
        send_one(ready, settings)
    return ready.handle


def _make_ready(request: NewJobRequest, settings: Settings) -> Ready:
    if request.definition.is_late:
        warn_of_late(request.definition, settings)
    if (batch := membership.current.get()) is not None:
        request.batch = batch
    now = new_job.now_ms()
    request.sent = new = encode(request, settings, now)
    return Ready(request, new, JobHandle(new.id, request.definition.name, request.queue, state_of(new, now)))


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


@lru_cache(maxsize=32)
def _middleware(paths: tuple[str, ...]) -> tuple[Callable[[GetHandle], GetHandle], ...]:
    return tuple(import_string(path) for path in paths)


def through_middleware(paths: tuple[str, ...], innermost: GetHandle) -> GetHandle:
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


def _waits_for_commit(request: NewJobRequest, settings: Settings) -> bool:
    """Return whether the caller is inside atomic() and the job should wait for the commit."""
    wanted = settings.on_commit if request.on_commit is None else request.on_commit
    return wanted and in_transaction(settings.database)


def in_transaction(alias: str) -> bool:
    """Is this thread inside atomic()?  Opens no connection, so it works where there is no database at all."""
    return connections[alias].in_atomic_block


# -- to the store ------------------------------------------------------------------


def send_one(ready: Ready, settings: Settings) -> None:
    """Send one job, as every plain `enqueue()` does.  Raises QueueFull, DuplicateJob or a StoreError."""
    if settings.eager:
        return _run_eagerly(ready)
    queue = _queue(ready.handle.queue, settings)
    answer = _ask_store(queue, [ready])[0]
    _note(ready, answer)
    if answer is Added.EXISTS:
        _show_first(ready.handle)
    return _complain(queue, ready, answer, 0)


def _show_first(handle: JobHandle) -> None:
    """Give the caller a handle for the first job with that id, which may have ended and left long ago."""
    store = get_store()
    if (info := store.get(handle.queue, handle.id)) is not None:
        handle.show(info)
    elif (known := store.remembered(handle.queue, handle.id)) is not None and known.state is not None:
        handle.show(JobInfo(handle.id, handle.queue, b"", known.state, at=known.at), final=True)


def send(ready: list[Ready]) -> None:
    """Send jobs with one call to the store per queue and batch.  Raises the errors of `send_one`."""
    batches = _Batches(get_settings())
    try:
        for each in ready:
            batches.add(each)
        batches.send_rest()
    except StoreError as error:
        error.job_ids = JobIds(each.handle.id for each in ready)
        error.job_ids.answered = frozenset(each.handle.id for each in ready if each.handle.added is not None)
        raise


class _Batches:
    """Sends jobs in batches: that of a queue is sent when it is full and another job of the queue comes.

    While the store adds one batch, the caller makes the jobs of the next."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: queue → its unsent jobs, the bytes of their records, and how many of them fill a batch.
        self._unsent: dict[str, list[Ready]] = {}
        self._bytes: dict[str, int] = {}
        self._most: dict[str, int] = {}
        #: the batch that was sent last, its queue, and the function that waits for the answers; None: all are there.
        self._sent: tuple[QueueSettings, list[Ready], Answers] | None = None
        #: how many jobs the store has added.
        self.accepted = 0

    def add(self, each: Ready) -> None:
        """Send this job with the next batch of its queue."""
        if self._settings.eager:
            _run_eagerly(each)
            return
        name = each.handle.queue
        if name not in self._unsent:
            self._unsent[name], self._bytes[name] = [], 0
            # The store takes or refuses a batch as a whole: one that is larger than the queue would never fit.
            self._most[name] = min(MAX_BATCH, _queue(name, self._settings).max_length or MAX_BATCH)
        elif self._bytes[name] >= ADDED_BYTES or len(self._unsent[name]) >= self._most[name]:
            self._send(name)
        self._unsent[name].append(each)
        self._bytes[name] += len(each.new.record)

    def send_rest(self) -> None:
        """Send the batches that are not full, and wait for all answers."""
        for name, batch in list(self._unsent.items()):
            if batch:
                self._send(name)
        self.finish()

    def _send(self, name: str) -> None:
        batch, self._unsent[name], self._bytes[name] = self._unsent[name], [], 0
        self.finish()
        queue = _queue(name, self._settings)
        if queue.max_length or any(each.request.batch is not None for each in batch):
            # There may be no room, or the batch may be closed: then the caller must not go on.
            self.accepted += _pass_on(queue, batch, _ask_store(queue, batch), self.accepted)
        else:
            self._sent = queue, batch, _begin_to_ask(queue, batch)

    def finish(self) -> None:
        """Wait for the answers to the batch that was sent last, and pass them on.  Raises the errors of `send_one`."""
        if self._sent is not None:
            (queue, batch, answers), self._sent = self._sent, None
            self.accepted += _pass_on(queue, batch, answers(), self.accepted)


def send_calls(calls: Sequence[list[Ready]], away: StoreUnavailable | None = None) -> list[commits.Refused]:
    """Send the jobs of several calls after one commit.  They are sent together, with one wait for an unreachable
    store, but each job is refused separately.  `away`: the error, if the store was just found unreachable.  Returns
    the refused jobs and why."""
    refused: list[commits.Refused] = []
    for name, batches in _batches(calls, get_settings()).items():
        for batch in batches:
            try:
                if away is not None:
                    raise away
                refused += _send_and_note(name, batch)
            except JobsError as error:
                refused.append((batch, error))
                if isinstance(error, StoreError) and not error.job_ids:
                    error.job_ids = JobIds(each.handle.id for call in calls for each in call)
                    told = (each.handle for call in calls for each in call if each.handle.added is not None)
                    error.job_ids.answered = frozenset(handle.id for handle in told)
                away = error if isinstance(error, StoreUnavailable) else away
    return refused


def _batches(calls: Sequence[list[Ready]], settings: Settings) -> dict[str, list[list[Ready]]]:
    """Return, by queue, the batches that are sent with one call each."""
    by_queue: dict[str, list[list[Ready]]] = {}
    last: dict[str, int] = {}
    size: dict[str, int] = {}
    for number, call in enumerate(calls):
        for each in call:
            batches = by_queue.setdefault(each.handle.queue, [[]])
            most = _queue(each.handle.queue, settings).max_length
            # A bounded queue takes a batch as a whole or not at all; of several calls, the first may fit.
            is_full = len(batches[-1]) >= (min(most, MAX_BATCH) if most else MAX_BATCH)
            is_full = is_full or size.get(each.handle.queue, 0) >= ADDED_BYTES
            if batches[-1] and (is_full or (most and last[each.handle.queue] != number)):
                batches.append([])
                size[each.handle.queue] = 0
            size[each.handle.queue] = size.get(each.handle.queue, 0) + len(each.new.record)
            last[each.handle.queue] = number
            batches[-1].append(each)
    return by_queue


def _send_and_note(name: str, batch: list[Ready]) -> list[commits.Refused]:
    settings = get_settings()
    if settings.eager:
        for each in batch:
            _run_eagerly(each)
        return []
    queue, refused = _queue(name, settings), []
    answers = _ask_store(queue, batch)
    for each, answer in zip(batch, answers, strict=True):
        _note(each, answer)
    for each, answer in zip(batch, answers, strict=True):
        try:
            _complain(queue, each, answer, answers.count(Added.ADDED))
        except JobsError as error:
            refused.append(([each], error))
    return refused


def _pass_on(queue: QueueSettings, batch: list[Ready], answers: list[Added], accepted: int) -> int:
    """Tell the callers and the receivers what the store did.  Returns how many jobs it added."""
    # Update every handle before the first error is raised: the caller may still use all of them.
    for each, answer in zip(batch, answers, strict=True):
        _note(each, answer)
    taken = answers.count(Added.ADDED)
    for each, answer in zip(batch, answers, strict=True):
        if answer is not Added.ADDED:
            _complain(queue, each, answer, accepted + taken)
    return taken


def _queue(name: str, settings: Settings) -> QueueSettings:
    # The settings may have changed since the job was checked: it waited for its commit.
    return settings.queues.get(name) or QueueSettings(name)


def _ask_store(queue: QueueSettings, batch: list[Ready]) -> list[Added]:
    """Ask the store until there is room, if the queue says so: the caller has to wait (ON_FULL "block")."""
    store, new = get_store(), [each.new for each in batch]
    members = [each for each in batch if each.request.batch is not None]
    if members:
        membership.join(queue.name, members)
    try:
        answers = _ask_until_room(store, queue, new, batch[0].request.block_timeout)
    except StoreUnavailable as error:  # not `with _naming`: each enqueue() comes here
        error.job_id = new[0].id
        raise
    if members:
        membership.leave(queue.name, batch, answers)
    return answers


def _begin_to_ask(queue: QueueSettings, batch: list[Ready]) -> Answers:
    """Send a batch, and return a function that waits for what `_ask_store` returns."""
    first = batch[0].new.id
    with _naming(first):
        wait = get_store().enqueue_ahead(queue.name, [each.new for each in batch])

    def named() -> list[Added]:
        with _naming(first):
            return wait()

    return named


@contextmanager
def _naming(job_id: str) -> Iterator[None]:
    """Put the id of the first job into the error if the store cannot be reached."""
    try:
        yield
    except StoreUnavailable as error:
        error.job_id = job_id
        raise


def _ask_until_room(store: Store, queue: QueueSettings, new: Sequence[NewJob], patience: float | None) -> list[Added]:
    answers = store.enqueue(queue.name, new, max_length=queue.max_length)
    if queue.on_full != "block" or Added.FULL not in answers or patience == 0:
        return answers
    deadline = None if patience is None else time.monotonic() + patience
    pause = _FIRST_PAUSE
    while Added.FULL in answers and (deadline is None or time.monotonic() < deadline):
        time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(pause * 2, _LONGEST_PAUSE)
        full = [i for i, answer in enumerate(answers) if answer is Added.FULL]
        again = store.enqueue(queue.name, [new[i] for i in full], max_length=queue.max_length)
        for i, answer in zip(full, again, strict=True):
            answers[i] = answer
    return answers


def _note(each: Ready, answer: Added) -> None:
    """Update the handle and, if the job was added, send the signal."""
    each.handle.added = answer
    if answer is Added.ADDED:
        if job_enqueued.receivers:
            _announce(each)
    elif answer is Added.FULL:
        each.handle.state = FULL
    elif answer is not Added.EXISTS:
        each.handle.state = DUPLICATE


def _complain(queue: QueueSettings, each: Ready, answer: Added, accepted: int) -> None:
    """Raise an error where the caller wants one."""
    if answer is Added.FULL and each.request.raise_when_full:
        raise QueueFull(queue.name, queue.max_length, accepted)
    if answer in (Added.DUPLICATE, Added.REPLACED) and each.request.on_conflict == "raise":
        raise DuplicateJob(
            f"An equal {each.handle.name} job already waits in queue {queue.name!r}, and on_conflict is 'raise'. "
            "Use enqueue_unique(), which then returns None, or on_conflict='skip'."
        )


def _announce(each: Ready) -> None:
    handle = each.handle
    job_enqueued.send_robust(
        sender=each.request.definition,
        job_id=handle.id,
        name=handle.name,
        queue=handle.queue,
        attempt=0,
        job=None,
        handle=handle,
    )


def _run_eagerly(each: Ready) -> None:
    _note(each, Added.ADDED)
    # Execution is a layer above enqueueing; only eager mode calls upwards, and only here.
    import_string("django_jobs.execution.eager.run")(each.new, each.handle)
    if each.request.batch is not None:
        each.request.batch.ran(each.handle)
