"""Jobs over HTTP: put, get, list, replay."""

from __future__ import annotations

from concurrent import futures
from datetime import datetime
from hashlib import sha256
from typing import Annotated

from django.http import HttpRequest, JsonResponse
from ninja import Header, Query, Router

from django_jobs import browse, operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log_job
from django_jobs.api.common.cursors import not_a_cursor, read_cursor, span_of, write_cursor
from django_jobs.api.common.principal import Principal, Scope, authenticate_again, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Name
from django_jobs.api.common.serializers import find, listed, look, shown, stored
from django_jobs.api.endpoints.requested import (
    accepted,
    answer_again,
    digest_of,
    equal_waits,
    in_history,
    new_request,
    offered,
    remembered,
    same,
)
from django_jobs.browse.query.parsing import terms_of
from django_jobs.browse.query.terms import Notes
from django_jobs.core.values import FINISHED, Added, JobInfo, State
from django_jobs.enqueueing.request import DIGEST_LENGTH, new_id, now_ms, request_for
from django_jobs.enqueueing.sending import end_late
from django_jobs.enqueueing.submit import submit
from django_jobs.exceptions import CorruptRecord
from django_jobs.operations import diagnosis
from django_jobs.outbox import in_outbox
from django_jobs.serialization.arguments import canonical, load
from django_jobs.serialization.record import decode, name_of
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import Span

router = Router(tags=["jobs"])
#: What the two parameters of a stretch of time say.
SINCE = (
    "Only jobs whose time is not before this one: when they are due (scheduled, retry) or when they ended. Without an "
    "offset it is UTC. Not for queued, running and blocked jobs."
)
UNTIL = "Only jobs whose time, as for `from`, is before this one."
Wait = Annotated[
    float,
    Query(ge=0, le=20, description="Seconds to wait for the end of a job that has not ended; this holds a thread."),
]


@router.put(
    "/v1/jobs/{name}/{id}",
    response={200: schemas.Job, 201: schemas.Job},
    summary="Enqueue",
    openapi_extra=refuses(Kind.ID_USED, Kind.KEY_USED, Kind.JOB_MOVED, Kind.UNREADABLE),
)
def put_job(request: HttpRequest, name: Name, id: Name, body: schemas.PutJob) -> JsonResponse:
    """Add a job under an id that you choose.  It is safe to send the call again: 201 the first time, then 200 and the
    same job.  409 if the id exists with other data."""
    principal = require(request, Scope.ENQUEUE, job=name)
    if body.id not in (None, id):
        raise Problem(Kind.INVALID, f"The address has the id {id!r}, and the body {body.id!r}.")
    definition = offered(name)
    digest = digest_of(definition, body, principal)
    (archived,) = in_history([(id, definition.queue, name)])
    if archived is not None:
        return JsonResponse(same(archived, name, digest, principal, archived=True))
    new = new_request(definition, name, id, body, digest)
    handle = submit(new)
    if handle.added is Added.ADDED:
        return JsonResponse(accepted(new, handle, principal), status=201)
    if handle.added is not Added.EXISTS:
        raise equal_waits(name, handle)
    return JsonResponse(answer_again(stored(handle.queue, [id]), new, handle, digest, principal))


@router.get("/v1/jobs", response=schemas.JobPage, summary="List the jobs of a state")
def list_jobs(
    request: HttpRequest,
    state: Annotated[State, Query(description="Jobs in this state.")],
    name: Annotated[str, Query(max_length=255, description="Only jobs of this type.")] = "",
    queue: Annotated[str, Query(max_length=255, description="Only jobs of this queue.")] = "",
    tag: Annotated[
        str,
        Query(
            max_length=64,
            description="Only jobs with this tag; dead jobs and retries then come in the order of their time.",
        ),
    ] = "",
    query: Annotated[str, Query(max_length=2000, description=schemas.QUERY)] = "",
    cursor: Annotated[str, Query(max_length=2000, description="The `cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    since: Annotated[datetime | None, Query(alias="from", description=SINCE)] = None,
    until: Annotated[datetime | None, Query(description=UNTIL)] = None,
) -> JsonResponse:
    """List jobs without results and logs; get one job to see them.  Each job that stays in the state appears exactly
    once, even if other jobs come, go or are moved in the meantime.  Jobs that end after the first page may be missing.
    A page may have fewer jobs than `limit`; only the last page has no cursor.  With `from` or `until`, jobs come in the
    order of their time, and succeeded jobs with `keep_result` are left out."""
    principal = require(request, Scope.READ, job=name or None)
    span = span_of(state, since, until) or Span()
    match = browse.Match(queue, name, since=span.since, before=span.before, tag=tag).asked(query, state)
    if match.queue:
        operations.check_queue(match.queue)
    notes, checked = Notes(terms_of(match.terms)), 0

    def accepts(info: JobInfo) -> bool:
        nonlocal checked
        if not principal.knows(name_of(info.record)):
            return False
        checked += 1
        notes.see(info)
        return match.accepts(info)

    queues = [match.queue]
    if not match.queue:
        counted = browse.job_counts()
        queues = counted.holding(state) + counted.uncounted
    has_groups = state in browse.GROUPED and (match.tag or (query and match.has_groups))
    groups = browse.matching_groups(state, match, queues) if has_groups else None
    try:
        if match.id:
            infos = [] if cursor else browse.with_id([state], match, queues)
            found, following = [info for info in infos if accepts(info)], None
        else:
            found, following = browse.listing(
                state, queues, accepts, limit, read_cursor(cursor), span=match.span, groups=groups
            )  # fmt: skip
    except (ValueError, OverflowError, RecursionError) as error:
        raise not_a_cursor(cursor) from error
    jobs = [listed(info, principal) for info in found]
    about = {"checked": checked, "notes": notes.sentences()} if query else {}
    return JsonResponse({"jobs": jobs, "cursor": write_cursor(following) if following else None} | about)


@router.get("/v1/jobs/{name}/{id}", response=schemas.Job, summary="Get")
def get_job(request: HttpRequest, name: Name, id: Name, wait: Wait = 0) -> JsonResponse:
    """Get a waiting, running or finished job.  If it has left the queue, it comes from the archive."""
    principal = require(request, Scope.READ, Scope.ENQUEUE, job=name)
    info, archived = find(id, name=name)
    if has_waited(info, wait):
        principal = required_again(request, name)
        info, archived = find(id, name=name)
    return JsonResponse(shown(info, principal, archived=archived))


@router.get("/v1/jobs/{name}/{id}/why", response=schemas.Why, summary="Why it does not start")
def why(request: HttpRequest, name: Name, id: Name) -> JsonResponse:
    """Why the job does not start, as one word and one sentence; or that it has started, or has ended.  `findings` are
    empty for a token that is limited to some job types: they have numbers of all jobs."""
    principal = require(request, Scope.READ, job=name)
    info, _ = find(id, name=name)
    payload = diagnosis.why(info).payload()
    return JsonResponse(payload | {"findings": []} if principal.jobs else payload)


@router.get("/v1/jobs/{id}", response=schemas.Job, summary="Get by id only")
def get_job_by_id(request: HttpRequest, id: Name, wait: Wait = 0) -> JsonResponse:
    """Get a job of which you know only the id.  This call asks all queues, and returns the first job with that id."""
    principal = require(request, Scope.READ, Scope.ENQUEUE)
    found = look(id, knows=principal.knows)
    if found is not None and has_waited(found[0], wait):
        principal = required_again(request)
        found = look(id, knows=principal.knows)
    if found is None:
        waits = "" if principal.jobs else in_outbox(id)
        raise Problem(Kind.NO_JOB, f"There is no job {id!r} that {principal.name!r} may see.{waits}")
    return JsonResponse(shown(found[0], principal, archived=found[1]))


def required_again(request: HttpRequest, name: str | None = None) -> Principal:
    """Return the caller after a wait, if it may still see the job.  Raises Problem 401 or 403."""
    authenticate_again(request)
    return require(request, Scope.READ, Scope.ENQUEUE, job=name)


def has_waited(info: JobInfo, seconds: float) -> bool:
    """Wait until the job has ended, for at most so many seconds.  Returns False if there was nothing to wait for."""
    if not seconds or info.state in FINISHED:
        return False
    end = get_store().end_of(info.queue, info.id)
    futures.wait([end], seconds)
    end.cancel()
    return True


@router.post(
    "/v1/jobs/{name}/{id}/replay",
    response={200: schemas.Job, 201: schemas.Job},
    summary="Replay",
    openapi_extra=refuses(Kind.ID_USED, Kind.UNREADABLE, Kind.MAY_HAVE_STARTED),
)
def replay_job(
    request: HttpRequest,
    name: Name,
    id: Name,
    body: schemas.ReplayRequest | None = None,
    key: Annotated[
        str | None,
        Header(alias="Idempotency-Key", min_length=1, max_length=255, description="Any text: equal calls, one job."),
    ] = None,
) -> JsonResponse:
    """Run the job again, at once, as a new job.  A job that has expired expires again at once.  With an `id` that you
    choose, or an `Idempotency-Key`, it is safe to send the call again: 201 the first time, then 200 and the same job.
    With neither, each call makes a new job."""
    principal = require(request, Scope.MANAGE, job=name)
    definition = offered(name)
    wanted = body.id if body is not None else None
    if wanted is None and key is not None:
        wanted = sha256(canonical([definition.identity, id, key], "key")).hexdigest()[:32]
    if wanted is not None and (made := replayed(name, id, wanted)) is not None:
        return JsonResponse(shown(made[0], principal, archived=made[1]))
    info, _ = find(id, name=name)
    if operations.has_begun_once(info) and not (body is not None and body.start_again and wanted):
        raise Problem(
            Kind.MAY_HAVE_STARTED,
            f"Job {id!r} is delivered at most once and may have been started. Find out what it has done. "
            'To start a copy, send "start_again": true, and an id or Idempotency-Key: then the call may be repeated.',
        )
    new_one = wanted or new_id(now_ms())
    try:
        old = decode(info.id, info.queue, info.record)
    except CorruptRecord as error:
        raise Problem(Kind.UNREADABLE, str(error)) from error
    args, kwargs = load(old.args)
    new = request_for(definition, args, kwargs)
    new.id, new.queue, new.priority = new_one, info.queue, old.controls.priority
    new.tags, new.scope = old.tags or new.tags, old.options.scope
    new.meta, new.on_commit, new.block_timeout, new.unique = {"replay": id}, False, 0, None
    if wanted:
        new.digest = sha256(canonical(["replay", definition.identity, id], "replay")).hexdigest()[:DIGEST_LENGTH]
    if info.state is State.EXPIRED:
        new.expires_at = old.controls.expires_at
    handle = submit(new)
    is_new = handle.added is Added.ADDED
    if is_new:
        log_job(request, "replay", info.queue, id, job=[info.queue, new_one])
        if info.state is not State.EXPIRED:
            return JsonResponse(accepted(new, handle, principal), status=201)
        end_late(info.queue)
    made = replayed(name, id, new_one)
    answer = shown(made[0], principal, archived=made[1]) if made else remembered(new, handle, principal)
    return JsonResponse(answer, status=201 if is_new else 200)


def replayed(name: str, id: str, wanted: str) -> tuple[JobInfo, bool] | None:
    """Return the job that an earlier call for the same replay made, and whether it is archived; None if there is none.

    Raises Problem 409 if another job has the id."""
    found = look(wanted, name=name)
    if found is not None and (decode(wanted, found[0].queue, found[0].record).meta or {}).get("replay") != id:
        raise Problem(Kind.ID_USED, f"The id {wanted!r} exists and is no replay of {id!r}. Choose another id.")
    return found
