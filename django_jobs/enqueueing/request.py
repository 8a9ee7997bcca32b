"""One job on its way to the store: the request that enqueue middleware gets, and its encoding.

Long because the two name the same things."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from os import urandom
from typing import Any, NamedTuple, Protocol

from django_jobs.conf import Settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition, with_changes
from django_jobs.core.options.checks import tags_of_call
from django_jobs.core.options.declared import JobOptions
from django_jobs.core.values import Controls, Job, NewJob, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.keys import digest_of_arguments, digest_of_key, limit_key
from django_jobs.exceptions import InvalidArguments, PayloadError, UnknownQueue
from django_jobs.formatting import counted
from django_jobs.serialization import arguments
from django_jobs.serialization import record as codec

#: Characters of a digest that are kept: enough to tell two calls apart.  Each remembered id costs one digest.
DIGEST_LENGTH = 20
#: Characters of the longest scope.
LONGEST_SCOPE = 100
#: The digest of a job that is a step: nobody else's id can be equal to its id.
STEP = "step"
#: Means that no key was given; None is a valid key.
NO_KEY: Any = object()


class JoinableBatch(Protocol):
    """An open batch, as enqueueing sees it (workflows/batch.py)."""

    id: str

    def new_fields(self) -> Mapping[str, bytes | int]:
        """Return its fields in the store, in case it is not there yet; {} if it must be."""
        ...


@dataclass(slots=True)
class NewJobRequest:
    """One job as it was requested.  Enqueue middleware gets it, may change it, and passes it on.

    Times are integer milliseconds since the epoch (`run_at` 0 = now).  A delay, `run_in`, is in milliseconds from the
    call, by the store's clock; `run_at`, if set, takes precedence.  `meta` is stored with the job (JSON values only)
    and is available as `RunningJob.meta`.  `scope` (a tenant, a site) is stored, too, and is a part of all keys of the
    job: jobs of two scopes are never equal, and do not share a limit.
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
    #: ms after the job could first run; None: as the definition says.  `expires_at` takes precedence.
    expires_in: int | None = None
    #: None: as the definition says.
    max_attempts: int | None = None
    #: None: as ON_COMMIT says.
    on_commit: bool | None = None
    outbox: bool = True
    #: "queued" | "running" | "success" | a period in seconds | None = not unique.
    unique: str | float | None = None
    unique_on: Sequence[str] | None = None
    unique_key: Any = field(default=NO_KEY)
    on_conflict: str = "skip"
    #: all tags of the job, those of the definition included.
    tags: Sequence[str] = ()
    #: seconds to wait for room if ON_FULL is "block"; None = without limit, 0 = do not wait.
    block_timeout: float | None = None
    #: False: a full queue sets the handle's state to "full" and raises no QueueFull.
    raise_when_full: bool = True
    schedule_run: tuple[str, int] | None = None
    meta: dict[str, Any] | None = None
    scope: str = ""
    #: options of the type that this call changes: CHANGEABLE, as `check_options` returns them.
    changed: Mapping[str, Any] | None = None
    #: what a repeated call with the same id is compared with; None: name and arguments.
    digest: str | None = None
    #: the batch that the job joins when it is sent; None = none.
    batch: JoinableBatch | None = None
    #: the arguments as they are stored, if they were checked before; None = they were not.
    data: bytes | None = None
    #: it has a row in the outbox.
    is_kept: bool = False
    #: what was sent to the store.
    sent: NewJob | None = None

    @property
    def name(self) -> str:
        """The job's name on the wire."""
        return self.definition.name


def request_for(
    definition: JobDefinition,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    placed: tuple[str, int] | None = None,
) -> NewJobRequest:
    """Return the request for `job.enqueue(*args, **kwargs)`, from the definition alone.  `placed`: another queue and
    priority than those of the definition."""
    options = definition.options
    request = NewJobRequest(definition, args, kwargs, *(placed or definition.placed(args, kwargs)))
    # unique_on without unique is for enqueue_unique().
    request.unique, request.unique_on, request.on_conflict = options.unique, options.unique_on, options.on_conflict
    request.tags = options.tags
    return request


class WorkflowStep(NamedTuple):
    """What a workflow says of the job of a step.  Such a job is never unique."""

    #: made of the ids of the workflow and of the step.
    id: str
    #: the workflow that is told of its end; None = none.
    workflow: str | None
    #: a later step needs the result.
    noted_result: bool


class EncodedJob(NamedTuple):
    """An encoded job, and the handle that its caller has."""

    request: NewJobRequest
    new: NewJob
    handle: JobHandle


def encode(request: NewJobRequest, settings: Settings, now: int, step: WorkflowStep | None = None) -> NewJob:
    """Return the job as the store takes it.  Raises every error of a request, before the store is called."""
    definition = request.definition
    data = checked_arguments(request, settings) if request.data is None else request.data
    if request.queue not in settings.queues:
        raise unknown_queue(request.queue, settings)
    meta = request.meta
    if step is not None:
        id = step.id
    elif request.id is None:
        id = new_id(now)
    else:
        id = request.id
        # Two callers that use one id must not look like one call sent twice: only a repeated send has the same bytes.
        meta = {**(meta or {}), "nonce": urandom(8).hex()}
    _, options, stored, shared = definition.resolved()
    if request.changed:
        stored, shared = with_changes(request.changed, stored, shared)
    if shared.on_end is not None or shared.on_dead is not None:
        registry.check_end_calls(definition, shared)
    if request.max_attempts is not None and request.max_attempts != stored.max_attempts:
        stored = replace(stored, max_attempts=request.max_attempts)
    if request.tags is not options.tags:
        stored = replace(stored, tags=" ".join(tags_of_call(definition.name, request.tags)))
    if request.scope:
        stored = replace(stored, scope=_checked_scope(request))
    controls = _controls(request, options, shared, step)
    run_in = None if request.run_at else request.run_in or None
    # The store fills in both times, by its clock: of expiry, and of enqueueing.
    expires_in = None if controls.expires_at else _expires_in(request, options)
    if not meta and (controls is shared or _is_of_workflow_alone(controls)):
        record = codec.shared_head(definition.name, stored, controls) + data
    elif request.unique is not None and controls.unique and not meta and _is_of_unique_alone(controls, shared):
        before, after = codec.head_around_digest(definition.name, stored, _of_unique(shared, request.unique))
        record = b"%b%b%b%b" % (before, controls.unique.encode(), after, data)
    else:
        record = codec.encode(Job(id, request.queue, definition.name, data, 0, stored, controls, meta))
    conflict = request.on_conflict if controls.unique else "skip"
    # Only a job that may be sent twice, or must not run twice, has a digest; others cost nothing more.
    is_promise = request.id is not None or controls.at_most_once or request.is_kept
    same = f"{definition.identity}\n{request.scope}" if request.scope else definition.identity
    digest = (request.digest or digest_of_call(same, data)) if is_promise else ""
    if step is not None:
        digest = STEP
    return NewJob(id, record, controls, request.run_at, conflict, request.schedule_run, run_in, expires_in, digest)


def checked_arguments(request: NewJobRequest, settings: Settings) -> bytes:
    """Return the arguments as they are stored.  Raises InvalidArguments or PayloadError if they cannot be sent."""
    definition = request.definition
    definition.check_call(request.args, request.kwargs)
    try:
        data = arguments.dump(request.args, request.kwargs)
    except PayloadError as error:
        raise PayloadError(f"{definition.name}: {definition.with_names(str(error))}") from error
    check_size(definition.name, data, settings)
    return data


def _checked_scope(request: NewJobRequest) -> str:
    scope: Any = request.scope
    if not isinstance(scope, str) or len(scope) > LONGEST_SCOPE or not scope.isprintable():
        raise InvalidArguments(
            f"{request.name}: scope={scope!r:.200}: use printable text of at most {LONGEST_SCOPE} characters."
        )
    return scope


def check_size(name: str, data: bytes, settings: Settings) -> None:
    """Raise PayloadError for arguments that are longer than MAX_PAYLOAD."""
    if len(data) > settings.max_payload:
        raise PayloadError(
            f"The arguments of {name} take {counted(len(data), 'byte')}; MAX_PAYLOAD is "
            f"{settings.max_payload}. Store the data and pass its id, or raise DJANGO_JOBS['MAX_PAYLOAD']."
        )


def digest_of_call(name: str, data: bytes) -> str:
    """Return a digest that is equal only for equal calls."""
    return sha256(name.encode() + b"\n" + data).hexdigest()[:DIGEST_LENGTH]


def sent_later(new: NewJob, elapsed: int) -> NewJob:
    """Return the same job for sending `elapsed` ms after the call.  Its delays count from the call."""
    if new.run_in is None and new.expires_in is None:
        return new
    run_in = new.run_in or 0
    late = min(elapsed, now_ms() - new.run_at) if new.run_at else elapsed - run_in  # since it could first have run
    expires_in = None if new.expires_in is None else max(0, new.expires_in - max(0, late))
    return new._replace(run_in=None if new.run_in is None else max(0, run_in - elapsed), expires_in=expires_in)


def state_of(new: NewJob, now: int) -> State:
    """Return the state that a job has after it was added."""
    return State.SCHEDULED if new.run_in or new.run_at > now else State.QUEUED


def _controls(request: NewJobRequest, options: JobOptions, controls: Controls, step: WorkflowStep | None) -> Controls:
    """Return the controls for the store: the definition's part, and what depends on this call."""
    definition = request.definition
    changes: dict[str, Any] = {}
    if request.priority != controls.priority:
        changes["priority"] = request.priority
    if request.expires_at is not None:
        changes["expires_at"] = request.expires_at
    elif _expires_in(request, options) is not None:
        changes["expires_at"] = 0  # the store fills it in
    if options.max_concurrency:
        changes["limit_key"] = limit_key(definition, request.args, request.kwargs, request.scope)
        changes["limit"] = options.max_concurrency
    workflow = step.workflow if step is not None else request.batch.id if request.batch is not None else None
    if workflow is not None:
        noted_result = step is not None and step.noted_result
        if not changes and (request.unique is None or step is not None):
            return _of_workflow(controls, workflow, noted_result)
        changes |= {"workflow": workflow, "noted_result": noted_result}
    if request.unique is not None and step is None:
        if request.unique_key is NO_KEY:
            digest = digest_of_arguments(definition, request.args, request.kwargs, request.unique_on, request.scope)
        else:
            digest = digest_of_key(definition, request.unique_key, request.scope)
        if not changes:
            return _of_unique(controls, request.unique).with_digest(digest)
        return replace(_of_unique(controls, request.unique), unique=digest, **changes)
    return replace(controls, **changes) if changes else controls


def _expires_in(request: NewJobRequest, options: JobOptions) -> int | None:
    if request.expires_in is None and options.expires_in is not None:
        return round(options.expires_in * 1000)
    return request.expires_in


def _is_of_workflow_alone(controls: Controls) -> bool:
    """Are they one object for all jobs of the type in the workflow: does nothing in them depend on the arguments?"""
    return controls.workflow is not None and (controls.unique, controls.limit_key, controls.expires_at) == (None,) * 3


def _is_of_unique_alone(controls: Controls, shared: Controls) -> bool:
    """Does nothing but the unique key differ from one job of the type to the next?"""
    own = (controls.limit_key, controls.expires_at, controls.workflow)
    return own == (None, None, None) and controls.priority == shared.priority


@lru_cache(maxsize=256)
def _of_unique(controls: Controls, unique: str | float) -> Controls:
    """Return the same controls with how long the unique key is held: one object for all jobs of a type."""
    if isinstance(unique, str):
        return replace(controls, unique_mode=unique)
    return replace(controls, unique_mode="period", unique_for=max(1, round(unique * 1000)))


@lru_cache(maxsize=64)
def _of_workflow(controls: Controls, workflow: str, noted_result: bool) -> Controls:
    """Return the same controls with the workflow: one object for all its jobs of a type."""
    return replace(controls, workflow=workflow, noted_result=noted_result)


# -- ids, times, errors -------------------------------------------------------------


def new_id(now: int) -> str:
    """Return 32 hex characters: 12 of the time in ms, 20 random.  Ids therefore sort by time."""
    return f"{now:012x}{urandom(10).hex()}"


def now_ms() -> int:
    """Milliseconds since the epoch by this machine's clock."""
    return time.time_ns() // 1_000_000


def unknown_queue(queue: str, settings: Settings) -> UnknownQueue:
    """Return the error for a queue that is not configured.  It suggests the nearest name."""
    close = get_close_matches(str(queue), settings.queues, n=1)
    hint = (
        f"Did you mean {close[0]!r}?" if close else f"Add it there. Known queues: {', '.join(settings.queues.written)}."
    )
    return UnknownQueue(f"Queue {queue!r} is not in DJANGO_JOBS['QUEUES']. {hint}")
