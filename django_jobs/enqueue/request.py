"""One job on its way to the store: the request that enqueue middleware gets, its keys, and its encoding.

Unique keys are SHA-256 over canonical JSON.  1, 1.0, "1" and True differ; the order of arguments does not matter."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from os import urandom
from typing import Any, NamedTuple

from django_jobs.conf import Settings
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options import JobOptions
from django_jobs.core.values import Controls, Job, NewJob, State
from django_jobs.enqueue.handle import JobHandle
from django_jobs.exceptions import InvalidArguments, PayloadError, UnknownQueue
from django_jobs.formatting import counted
from django_jobs.serialization import arguments
from django_jobs.serialization import record as codec
from django_jobs.serialization.arguments import canonical

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
#: Characters of a digest that are kept: enough to tell two calls apart.  Each remembered id costs one digest.
DIGEST_LENGTH = 20
#: A limit key up to this length is kept as text, which users can read in the admin.
_READABLE = 100
#: Means that no key was given; None is a valid key.
NO_KEY: Any = object()
_LONGEST_DELAY = 100 * 366 * 86_400


@dataclass(slots=True)
class NewJobRequest:
    """One job as it was requested.  Enqueue middleware gets it, may change it, and passes it on.

    Times are integer milliseconds since the epoch (`run_at` 0 = now).  A delay, `run_in`, is in milliseconds from the
    call, by the store's clock; `run_at`, if set, takes precedence.  `meta` is stored with the job (JSON values only)
    and is available as `RunningJob.meta`.
    """

    definition: JobDefinition
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    priority: int
    #: None: an id is generated.
    id: str | None = None
    run_at: int = 0
    run_in: int | None = None
    expires_at: int | None = None
    #: None: as the definition says.
    max_attempts: int | None = None
    #: None: as ON_COMMIT says.
    on_commit: bool | None = None
    #: "queued" | "running" | "success" | a period in seconds | None = not unique.
    unique: str | float | None = None
    unique_on: Sequence[str] | None = None
    unique_key: Any = field(default=NO_KEY)
    on_conflict: str = "skip"
    #: seconds to wait for room in a full queue with ON_FULL "block"; None = without limit, 0 = do not wait.
    block_timeout: float | None = None
    #: False: a full queue sets the handle's state to "full" and raises no QueueFull.
    raise_when_full: bool = True
    schedule_run: tuple[str, int] | None = None
    meta: dict[str, Any] | None = None
    #: what a repeated call with the same id is compared with; None: name and arguments.
    digest: str | None = None
    #: what was sent to the store; None until it was encoded.
    sent: NewJob | None = None

    @property
    def name(self) -> str:
        """The job's name on the wire."""
        return self.definition.name


class Ready(NamedTuple):
    """An encoded job, and the handle that its caller has."""

    request: NewJobRequest
    new: NewJob
    handle: JobHandle


def encode(request: NewJobRequest, settings: Settings, now: int) -> NewJob:
    """Return the job as the store takes it.  Raises every error of a request, before the store is called."""
    definition = request.definition
    definition.check_call(request.args, request.kwargs)
    try:
        data = arguments.dump(request.args, request.kwargs)
    except PayloadError as error:
        raise PayloadError(f"{definition.name}: {definition.with_names(str(error))}") from error
    if len(data) > settings.max_payload:
        raise PayloadError(
            f"The arguments of {definition.name} take {counted(len(data), 'byte')}; MAX_PAYLOAD is "
            f"{settings.max_payload}. Store the data and pass its id, or raise DJANGO_JOBS['MAX_PAYLOAD']."
        )
    if request.queue not in settings.queues:
        raise unknown_queue(request.queue, settings)
    meta = request.meta
    if request.id is None:
        id = new_id(now)
    else:
        id = request.id
        # Two callers that use one id must not look like one call sent twice: only a repeated send has the same bytes.
        meta = {**(meta or {}), "nonce": urandom(8).hex()}
    _, options, stored, shared = definition.resolved()
    if request.max_attempts is not None and request.max_attempts != stored.max_attempts:
        stored = replace(stored, max_attempts=request.max_attempts)
    controls = _controls(request, options, shared)
    run_in = None if request.run_at else request.run_in or None
    # The store fills in both times, by its clock: of expiry, and of enqueueing.
    expires_in = None if options.expires_in is None or controls.expires_at else round(options.expires_in * 1000)
    if controls is shared and not meta:
        record = codec.shared_head(definition.name, stored, controls) + data
    else:
        record = codec.encode(Job(id, request.queue, definition.name, data, 0, stored, controls, meta))
    conflict = request.on_conflict if controls.unique else "skip"
    # Only a job with a caller's id, or one that must not run twice, has a digest; others cost nothing more.
    is_promise = request.id is not None or controls.at_most_once
    digest = (request.digest or digest_of_call(definition.name, data)) if is_promise else ""
    return NewJob(id, record, controls, request.run_at, conflict, request.schedule_run, run_in, expires_in, digest)


def digest_of_call(name: str, data: bytes) -> str:
    """Return a digest that is equal only for equal calls."""
    return sha256(name.encode() + b"\n" + data).hexdigest()[:DIGEST_LENGTH]


def sent_later(new: NewJob, elapsed: int) -> NewJob:
    """Return the same job for sending `elapsed` ms after the call.  Its delays count from the call."""
    if new.run_in is None and new.expires_in is None:
        return new
    run_in = new.run_in or 0
    late = 0 if new.run_at else max(0, elapsed - run_in)  # how long ago it could first have run
    expires_in = None if new.expires_in is None else max(0, new.expires_in - late)
    return new._replace(run_in=None if new.run_in is None else max(0, run_in - elapsed), expires_in=expires_in)


def state_of(new: NewJob, now: int) -> State:
    """Return the state that a job has after it was added."""
    return State.SCHEDULED if new.run_in or new.run_at > now else State.QUEUED


def _controls(request: NewJobRequest, options: JobOptions, controls: Controls) -> Controls:
    """Return the controls for the store: the definition's part, and what depends on this call."""
    definition = request.definition
    changes: dict[str, Any] = {}
    if request.priority != controls.priority:
        changes["priority"] = request.priority
    if request.expires_at is not None:
        changes["expires_at"] = request.expires_at
    elif options.expires_in is not None:
        changes["expires_at"] = 0  # the store fills it in
    if options.max_concurrency:
        changes["limit_key"] = limit_key(definition, request.args, request.kwargs)
        changes["limit"] = options.max_concurrency
    if request.unique is not None:
        if request.unique_key is NO_KEY:
            digest = digest_of_arguments(definition, request.args, request.kwargs, request.unique_on)
        else:
            digest = digest_of_key(definition, request.unique_key)
        changes["unique"] = digest
        if isinstance(request.unique, str):
            changes["unique_mode"] = request.unique
        else:
            changes["unique_mode"], changes["unique_for"] = "period", max(1, round(request.unique * 1000))
    return replace(controls, **changes) if changes else controls


# -- keys ----------------------------------------------------------------------


def digest_of_arguments(
    definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any], only: Sequence[str] | None = None
) -> str:
    """Return the key of a call: equal for calls that mean the same, however the arguments were passed.

    Defaults count as if they had been passed.  `only` names the parameters that matter; None = all of them.
    """
    bound = _arguments_by_name(definition, args, kwargs)
    if only is not None:
        if unknown := [name for name in only if name not in bound]:
            raise InvalidArguments(f"{definition.name}: unique_on names {unknown[0]!r}, which this call does not pass.")
        bound = {name: bound[name] for name in only}
    return _digest(["arguments", definition.name, bound])


def digest_of_key(definition: JobDefinition, key: Any) -> str:
    """Return the key of a call that is unique by a value of the caller's.  Raises PayloadError if it is not JSON."""
    return _digest(["key", definition.name, key])


def limit_key(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the key that `max_concurrency` counts this call under: the job's name and its `concurrency_key`."""
    key = definition.concurrency_key
    if key is None:
        return definition.name
    if callable(key):
        value = key(*args, **kwargs)
    else:
        bound = _arguments_by_name(definition, args, kwargs)
        if key not in bound:
            raise InvalidArguments(f"{definition.name}: concurrency_key names {key!r}, which this call does not pass.")
        value = bound[key]
    text = canonical(value, "concurrency_key")
    return f"{definition.name}:{text.decode() if len(text) <= _READABLE else sha256(text).hexdigest()}"


def _arguments_by_name(definition: JobDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name; `**kwargs` become single entries, `*args` stay one entry."""
    bound = definition.bind(args, kwargs)
    given = set(bound.arguments)
    bound.apply_defaults()
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        parameter = definition.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif name in given or parameter.kind is parameter.VAR_POSITIONAL or _can_be_stored(value):
            named[name] = list(value) if parameter.kind is parameter.VAR_POSITIONAL else value
    return named


def _can_be_stored(default: Any) -> bool:
    """Return whether a default can be stored.  One such as `object()` says nothing about the call and is never sent."""
    try:
        canonical(default)
    except PayloadError:
        return False
    return True


def _digest(parts: list[Any]) -> str:
    return sha256(canonical(parts, "unique key")).hexdigest()


# -- values that callers give ----------------------------------------------------


def new_id(now: int) -> str:
    """Return 32 hex characters: 12 of the time in ms, 20 random.  Ids therefore sort by time."""
    return f"{now:012x}{urandom(10).hex()}"


def now_ms() -> int:
    """Milliseconds since the epoch by this machine's clock."""
    return time.time_ns() // 1_000_000


def check_id(id: Any) -> str:
    """Return the id.  Raises InvalidArguments if it is not valid: it becomes part of keys and addresses."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidArguments(f"job_id={id!r}: use 1 to 128 letters, digits and _ . : -")
    return id


def moment(value: Any, name: str) -> int:
    """Return an aware datetime as ms since the epoch.  Raises InvalidArguments for anything else."""
    if not isinstance(value, datetime):
        raise InvalidArguments(f"{name}={value!r}: use an aware datetime, as in timezone.now() + timedelta(hours=1).")
    if value.utcoffset() is None:
        raise InvalidArguments(
            f"{name}={value!r} has no time zone. Use an aware datetime, as in django.utils.timezone.make_aware(…)."
        )
    ms = round(value.timestamp() * 1000)
    if ms <= 0:
        raise InvalidArguments(f"{name}={value!r}: use a time after 1970.")
    return ms


def delay_ms(value: Any) -> int:
    """Return seconds or a timedelta as ms.  Raises InvalidArguments for a negative delay or anything else."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
        raise InvalidArguments(f"delay={value!r}: use seconds (a number) or a timedelta.")
    if not 0 <= number <= _LONGEST_DELAY:
        raise InvalidArguments(f"delay={value!r}: use 0 seconds or more, and at most 100 years.")
    return round(number * 1000)


def check_patience(value: Any) -> float | None:
    """Return `block_timeout`: seconds ≥ 0, or None to wait without limit.  Raises InvalidArguments."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        return value
    raise InvalidArguments(f"block_timeout={value!r}: use 0 seconds or more, or None to wait without a limit.")


def unknown_queue(queue: str, settings: Settings) -> UnknownQueue:
    """Return the error for a queue that is not configured.  It suggests the nearest name."""
    close = get_close_matches(str(queue), settings.queues, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Add it there. Known queues: {', '.join(settings.queues)}."
    return UnknownQueue(f"Queue {queue!r} is not in DJANGO_JOBS['QUEUES']. {hint}")
