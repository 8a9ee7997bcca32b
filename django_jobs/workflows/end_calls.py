"""The jobs that `on_end` and `on_dead` name: each is enqueued once for each end.  And jobs that are to be retried in
another queue: each arrives there once for each move (`Store.deliver`).

The end of a job and its entry in `end_calls` are one move (lib/ends/finish.lua).  From then on anybody may do the rest,
several processes at once, and again after a crash at any line: the id of the job is made of the end, no id is enqueued
twice, and an entry is removed last.  Normally the process that ended the job does it at once; maintenance does what was
left.
"""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import Error as DatabaseFault

from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import Job, JobInfo
from django_jobs.enqueueing.batching import Away
from django_jobs.enqueueing.request import DIGEST_LENGTH, NewJobRequest, request_for
from django_jobs.enqueueing.submit import submit_separately
from django_jobs.exceptions import CorruptRecord, JobsError, PayloadError, QueueFull, StoreError, UnknownJob
from django_jobs.runtime.complaints import Complaints
from django_jobs.runtime.crashpoints import ACTIVE, crashpoint
from django_jobs.serialization.arguments import dump, read, read_value
from django_jobs.serialization.masking import masked
from django_jobs.serialization.model_references import ModelReference
from django_jobs.serialization.record import decode
from django_jobs.serialization.results import why_missing, without_worker

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

logger = logging.getLogger("django_jobs")

#: In the place of the state, in the entry of the job that `on_dead` names.
ON_DEAD = "on_dead"
#: about what cannot follow from ends now; seconds.
later = Complaints(60.0)
#: Names that this process does not know, and has logged.
_warned: set[str] = set()
#: A process that has found ends which must wait does not look at them again for so many times as long as that took,
#: and for LONGEST_REST seconds at most (`follow_at_leisure`).
REST, LONGEST_REST = 9, 30.0
#: For each store: queue → until when (time.monotonic).
_rests: WeakKeyDictionary[Store, dict[str, float]] = WeakKeyDictionary()


def follow_at_leisure(store: Store, queue: str) -> int:
    """Do `follow`, unless this process did so a short time ago and found ends that had to wait.

    Each look reads all of them: if every end of a job led to one, the workers would do nothing else."""
    return 0 if monotonic() < _rests.get(store, {}).get(queue, 0) else follow(store, queue)


def follow(store: Store, queue: str) -> int:
    """Enqueue what follows from the ends of jobs in this queue, and deliver the jobs that have left it for another one.
    Returns for how many ends this is done.

    What cannot be enqueued now, because its queue is full or away, its name is not known here, or enqueue middleware
    cannot reach a database or another server, stays for a later call.  Raises StoreError, if a queue is away after the
    others have got their jobs."""
    began, done, left, position, look = monotonic(), 0, 0, 0, _Look()
    try:
        while True:
            ends, position = store.end_calls(queue, position)
            if ACTIVE and ends:
                crashpoint("end_calls.read")
            moved = {key for key, _ in ends if key.split(":", 2)[1:2] == ["moved"]}
            over = _enqueue(queue, [end for end in ends if end[0] not in moved], look)
            over += store.deliver(queue, [*moved])
            if ACTIVE:
                crashpoint("end_calls.enqueued")
            store.drop_end_calls(queue, over)
            if ACTIVE and over:
                crashpoint("end_calls.dropped")
            done, left = done + len(over), left + len(ends) - len(over)
            if not position:
                break
    finally:
        if left:
            _rests.setdefault(store, {})[queue] = monotonic() + min(REST * (monotonic() - began), LONGEST_REST)
    if look.failed:
        raise look.failed[0]
    return done


@dataclass(slots=True)
class _Look:
    """What one call of `follow` has found out."""

    #: as in Batcher.
    away: Away = field(default_factory=dict)
    #: errors of the store.
    failed: list[StoreError] = field(default_factory=list)
    #: as in Batcher.
    full: set[str] = field(default_factory=set)


def _enqueue(queue: str, ends: list[tuple[str, JobInfo]], look: _Look) -> list[str]:
    """Return the keys of the ends from which nothing more follows."""
    routed = get_settings().enqueue_middleware  # it may choose another queue than that of the type
    waiting: set[str] = set()
    keys: list[str] = []
    requests: list[NewJobRequest] = []
    for key, info in ends:
        try:
            job = decode(info.id, queue, info.record)
        except CorruptRecord as error:
            logger.error("No job can be enqueued for the end of job %s in queue %r: %s", info.id, queue, error)
            continue
        state = key.split(":", 2)[1]
        name = job.controls.on_dead if state == ON_DEAD else job.controls.on_end
        if name is None:
            continue
        definition = registry.known(name)
        if name in _warned if definition is None else definition.queue in look.full and not routed:
            waiting.add(key)
            continue
        try:
            requests.append(_request(name, key, "dead" if state == ON_DEAD else state, job, info))
            keys.append(key)
        except UnknownJob as error:
            waiting.add(key)
            _warn(job, name, error)
    for key, request, answer in zip(keys, requests, _submit(requests, look), strict=True):
        if isinstance(answer, DatabaseFault | OSError):
            if later.is_new(answer, f"{queue}\t{request.name}"):
                logger.warning("%s is enqueued later for the end of a job in queue %r: %s", request.name, queue, answer)
        elif isinstance(answer, StoreError):
            look.failed.append(answer)
        elif not isinstance(answer, QueueFull):
            if isinstance(answer, Exception):
                logger.error("%s cannot be enqueued for the end of a job in queue %r: %s", request.name, queue, answer)
            continue
        waiting.add(key)
    return [key for key, _ in ends if key not in waiting]


def _request(name: str, key: str, state: str, job: Job, info: JobInfo) -> NewJobRequest:
    """Raises UnknownJob."""
    request = request_for(registry.get(name), [told(state, job, info)], {})
    same = sha256(f"{job.queue}\n{key}\n{name}".encode()).hexdigest()
    request.id, request.digest, request.scope = same[:32], same[:DIGEST_LENGTH], job.options.scope
    # The entry is the note that this has to be done: there is no transaction to wait for, and nobody waits for room.
    request.on_commit, request.outbox, request.block_timeout = False, False, 0
    return request


def _submit(requests: list[NewJobRequest], look: _Look) -> list[Any]:
    """Return a handle or an error for each."""
    try:
        return [*submit_separately(map(copy, requests), look.away, look.full)]
    except Exception as error:  # of the project's enqueue middleware: it must not keep other jobs from being enqueued
        return [error] if len(requests) == 1 else [_submit([each], look)[0] for each in requests]


def told(state: str, job: Job, info: JobInfo) -> dict[str, Any]:
    """Return the argument of such a job: what is known of the end, without sensitive values."""
    shown = masked(info)
    last = info.attempts[-1] if info.attempts else None
    has_succeeded = state == "succeeded"
    args: Any
    kwargs: Any
    told_job = decode(shown.id, job.queue, shown.record)
    try:
        args, kwargs = read(told_job.args)
    except PayloadError:  # all of it is hidden
        args = kwargs = None
    run_ms = info.run_ms if has_succeeded or last is None else last.run_ms
    ended_at = datetime.fromtimestamp(info.at / 1000, UTC)
    end = {
        "id": job.id,
        "name": registry.current_name(job.name),
        "queue": job.queue,
        "state": state,
        "args": _plain(args),
        "kwargs": _plain(kwargs),
        "result": _plain(_result(shown)) if has_succeeded else None,
        "error": shown.attempts[-1].said if last is not None and not has_succeeded else None,
        "attempts": max(last.attempt if last else 0, info.earlier + info.failures + info.crashes + has_succeeded),
        "started_at": ended_at - timedelta(milliseconds=run_ms) if run_ms >= 0 else None,
        "ended_at": ended_at,
        "meta": told_job.meta or {},
    }
    for large in (("result",), ("args", "kwargs"), ("error",)):
        if len(dump([end], {})) <= get_settings().max_payload:
            break
        end |= dict.fromkeys(large)
    return end


def _result(info: JobInfo) -> Any:
    stored = without_worker(info.result or b"null")
    try:
        return None if why_missing(stored) else read_value(stored)
    except PayloadError:  # a part of it is hidden
        return None


def _plain(value: Any) -> Any:
    """Return the value without model instances: their rows may be gone when the job runs."""
    if isinstance(value, ModelReference):
        return {"model": value.model._meta.label, "pk": value.pk}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value


def _warn(job: Job, name: str, error: JobsError) -> None:
    if name not in _warned:
        _warned.add(name)
        logger.warning("The end of job %s waits for a process that knows %r: %s", job.id, name, error)
