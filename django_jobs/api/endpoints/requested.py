"""One job that a client asks for: its request, the answers to it, and how the same request is recognized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from django_jobs import archive
from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Principal
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.api.common.serializers import call_of, shown
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.checks import tags_of_call
from django_jobs.core.values import Added, JobInfo, State
from django_jobs.enqueueing.call_options import moment
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import DIGEST_LENGTH, NewJobRequest, request_for
from django_jobs.exceptions import CorruptRecord, NotKnownYet, UnknownJob
from django_jobs.remote import known
from django_jobs.serialization.arguments import canonical
from django_jobs.serialization.record import decode, name_of
from django_jobs.stores import get_store

#: Key in a job's meta for the digest of a PUT; a second PUT with the same id is compared with it.
PUT = "put"


def offered(name: str) -> JobDefinition:
    """Return the job type if the API offers it; otherwise answer as if it did not exist."""
    try:
        definition = registry.get(name)
    except NotKnownYet:
        raise
    except UnknownJob:
        definition = None
    if definition is None or not definition.api:
        raise Problem(
            Kind.NO_JOB_TYPE,
            f"The API offers no job type {name!r}. Set api=True on a job, or create a remote type.",
        )
    return definition


def digest_of(definition: JobDefinition, body: schemas.NewJob, principal: Principal) -> str:
    """Return a digest that is equal only for equal requests, whichever of its names they use for the type; if the type
    has sensitive arguments, of the same caller: 200 or 409 would tell another one whether it has guessed them."""
    times = [ms(body.run_after, "run_after"), ms(body.expires_at, "expires_at")]
    # Requests without tags have the digest that older versions made.
    tags = [sorted(set(body.tags))] if body.tags else []
    whose = [[principal.name]] if definition.sensitive else []
    return sha256(
        canonical([definition.identity, body.data, *times, body.priority, body.unique_key, *tags, *whose], "data")
    ).hexdigest()


def new_request(definition: JobDefinition, name: str, id: str, body: schemas.NewJob, digest: str) -> NewJobRequest:
    """Return the request of a client for one job.  `digest`: what `digest_of` returns."""
    new = request_for(definition, *call_of(body.data, remote=name in known()))
    # The client can wait instead: a full queue must not block a web process.
    new.id, new.meta, new.on_commit, new.block_timeout = id, {PUT: digest}, False, 0
    new.digest = digest[:DIGEST_LENGTH]
    new.run_at, new.expires_at = ms(body.run_after, "run_after") or 0, ms(body.expires_at, "expires_at")
    if body.priority is not None:
        new.priority = body.priority
    if body.unique_key is not None:
        new.unique, new.unique_key = new.unique or "queued", body.unique_key
    if body.tags:
        new.tags = tags_of_call(name, new.tags, body.tags)
    return new


def accepted(new: NewJobRequest, handle: JobHandle, principal: Principal) -> dict[str, Any]:
    """Return the job as the store accepted it.  Reading its current state would double the cost of a PUT."""
    if new.sent is None:  # enqueue middleware has passed on another request
        return {"id": handle.id, "name": handle.name, "queue": handle.queue, "state": handle.state, "archived": False}
    at = new.sent.run_at if handle.state is State.SCHEDULED else 0
    return shown(JobInfo(handle.id, handle.queue, new.sent.record, State(handle.state), at=at), principal)


def equal_waits(name: str, handle: JobHandle) -> Problem:
    """Return the answer to a request whose unique key a waiting job has."""
    assert handle.added is not None
    what = "It has the new arguments now." if handle.added is Added.REPLACED else "Nothing was changed."
    return Problem(Kind.KEY_USED, f"An equal {name} job is already waiting. {what}", outcome=handle.added.value)


def in_history(wanted: Sequence[tuple[str, str, str]]) -> list[JobInfo | None]:
    """Return for each request, its id, queue and job type, the job that has run under its id and left the store: the
    archive still knows that the id was used.  A job of that type may have ended in another queue."""
    if get_settings().archive is None:
        return [None] * len(wanted)
    ids = [id for id, _, _ in wanted]
    known = archive.found_many(ids) if len(ids) > 1 else {id: archive.found(id) for id in ids}
    found = [_that_ran(known.get(id, ()), queue, name) for id, queue, name in wanted]
    places: dict[str, set[str]] = {}
    for (id, queue, _), info in zip(wanted, found, strict=True):
        for each in {info.queue, queue} if info is not None else ():
            places.setdefault(each, set()).add(id)
    stored = {info.id for queue, some in places.items() for info in get_store().get_many(queue, [*some], moved=True)}
    return [None if id in stored else info for id, info in zip(ids, found, strict=True)]


def _that_ran(infos: Sequence[JobInfo], queue: str, name: str) -> JobInfo | None:
    """Return which of the archived jobs with one id a request for this queue and job type has made."""
    named = (info for info in infos if name_of(info.record) == registry.current_name(name))
    return next((info for info in infos if info.queue == queue), None) or next(named, None)


def remembered(new: NewJobRequest, handle: JobHandle, principal: Principal) -> dict[str, Any]:
    """Return the request and the end of the first job with this id, which has left the history."""
    known = get_store().remembered(handle.queue, handle.id)
    if known is None or known.state is None or new.sent is None:
        raise Problem(Kind.JOB_MOVED, f"Job {handle.id!r} leaves the history at this moment. Send the call again.")
    if known.digest != new.digest:
        raise different(handle.id)
    payload = shown(JobInfo(handle.id, handle.queue, new.sent.record, known.state, at=known.at), principal)
    return payload | {"enqueued_at": None}


def answer_again(
    found: Mapping[str, JobInfo], new: NewJobRequest, handle: JobHandle, digest: str, principal: Principal
) -> dict[str, Any]:
    """Return the first job with the id of a request, from what `stored` has found.  Raises Problem 409."""
    info = found.get(handle.id)
    return remembered(new, handle, principal) if info is None else same(info, new.name, digest, principal)


def same(info: JobInfo, name: str, digest: str, principal: Principal, *, archived: bool = False) -> dict[str, Any]:
    """Return the job.  Raises Problem 409 unless it came from the same request."""
    try:
        job = decode(info.id, info.queue, info.record)
    except CorruptRecord as error:
        raise Problem(Kind.UNREADABLE, f"The id {info.id!r} exists, but its record cannot be read.") from error
    if job.name != registry.current_name(name) or (job.meta or {}).get(PUT) != digest:
        raise different(info.id)
    return shown(info, principal, archived=archived)


def different(id: str) -> Problem:
    """Return the answer to a second request with the same id and other content."""
    return Problem(Kind.ID_USED, f"The id {id!r} exists with other data. Choose another id, or send the same data.")


def ms(value: datetime | None, name: str) -> int | None:
    return None if value is None else moment(value, name)
