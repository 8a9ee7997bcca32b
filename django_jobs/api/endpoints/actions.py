"""Changing jobs over HTTP: retry in place, kill, edit, reschedule, cancel, delete."""

from __future__ import annotations

import json

from django.http import HttpRequest, JsonResponse
from ninja import Schema
from pydantic import Field

from django_jobs import operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log_job
from django_jobs.api.common.principal import Principal, Scope, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Body, Moment, Name
from django_jobs.api.common.serializers import call_of, find, look, shown
from django_jobs.api.endpoints.jobs import router
from django_jobs.core.outcome import clean
from django_jobs.core.values import FINISHED, WAITING, JobInfo, State
from django_jobs.enqueueing.call_options import moment
from django_jobs.models import audit
from django_jobs.remote import known
from django_jobs.serialization.arguments import dump

# These endpoints use the router of the other methods of their URLs: one URL needs one router.
__all__ = ["router"]
#: A job in one of these states is already where `revive` would put it.
UNDER_WAY = frozenset({State.QUEUED, State.RUNNING})


class NewTime(Body):
    """When a waiting job shall run."""

    run_after: Moment = Field(description="The job does not start before this time.")


class Deleted(Schema):
    """There is no such job any more, except in the archive."""

    id: str
    name: str
    deleted: bool


@router.post(
    "/v1/jobs/{name}/{id}/retry",
    response=schemas.Job,
    summary="Retry in place",
    openapi_extra=refuses(
        Kind.JOB_ENDED,
        Kind.END_DIFFERS,
        Kind.MAY_HAVE_STARTED,
        Kind.KEY_USED,
        Kind.JOB_MOVED,
        Kind.ARCHIVED,
        Kind.UNREADABLE,
    ),
)
def retry_job(request: HttpRequest, name: Name, id: Name, body: schemas.RetryRequest | None = None) -> JsonResponse:
    """Queue the same job again, at once, with all its attempts.  A job that is already queued or running stays as it
    is, so it is safe to send the call twice; with `finished_at` it may also arrive late.  409 if the job has succeeded
    (replay it), if another job holds its unique key, or if it is delivered at most once and may have been started,
    unless `start_again` is true."""
    body = body or schemas.RetryRequest.model_validate({})
    principal = require(request, Scope.MANAGE, job=name)
    info = stored(id, name, "replay it")
    # `finished_at` names an end of the job: if the job waits, it has left that end already.
    if info.state not in UNDER_WAY and (body.finished_at is None or info.state in FINISHED):
        check_retry(info, body)
        if not operations.revive_as_seen(info, start_again=body.start_again):
            info = stored(id, name, "replay it")
            if info.state not in UNDER_WAY:
                raise Problem(Kind.JOB_MOVED, f"Job {id!r} has just changed its state: it is {info.state}.")
        else:
            log_job(request, "revive", info.queue, id, start_again=body.start_again)
    return JsonResponse(shown(stored(id, name, "replay it"), principal))


@router.post(
    "/v1/jobs/{name}/{id}/kill",
    response=schemas.Job,
    summary="Kill",
    openapi_extra=refuses(Kind.JOB_ENDED),
)
def kill_job(request: HttpRequest, name: Name, id: Name, body: schemas.KillRequest | None = None) -> JsonResponse:
    """Move a waiting or running job to dead.  A running job loses its claim, its process is ended, and its result no
    longer counts.  A dead job is not changed.  409 if the job has ended in another state."""
    body = body or schemas.KillRequest.model_validate({})
    principal = require(request, Scope.MANAGE, job=name)
    info, archived = find(id, name=name)
    if info.state not in FINISHED and not archived:
        if operations.kill(info.queue, [id], reason(principal, body.reason)).moved:
            log_job(request, "kill", info.queue, id, reason=body.reason)
        info, archived = find(id, name=name, queue=info.queue)
    if info.state is not State.DEAD:
        raise Problem(Kind.JOB_ENDED, f"Job {id!r} is {info.state} and cannot be killed.")
    return JsonResponse(shown(info, principal, archived=archived))


@router.patch(
    "/v1/jobs/{name}/{id}",
    response=schemas.Job,
    summary="Edit",
    openapi_extra=refuses(Kind.JOB_RUNS, Kind.KEY_USED, Kind.ARCHIVED, Kind.UNREADABLE),
)
def edit_job(request: HttpRequest, name: Name, id: Name, body: schemas.NewArguments) -> JsonResponse:
    """Change the arguments of a waiting job.  It keeps its place and its time; its unique key and its limit change with
    the arguments.  409 if it runs or has ended with other arguments, or if an equal job is already waiting."""
    principal = require(request, Scope.MANAGE, job=name)
    info = stored(id, name, "enqueue a new job")
    args, kwargs = json.loads(dump(*call_of(body.data, remote=name in known())))
    if operations.edit(info.queue, id, args, kwargs):
        log_job(request, "edit", info.queue, id, moved=0, **audit.edit_details(info, [args, kwargs]))
    return JsonResponse(shown(stored(id, name, "enqueue a new job"), principal))


@router.delete(
    "/v1/jobs/{name}/{id}",
    response=schemas.Job,
    summary="Cancel",
    openapi_extra=refuses(Kind.JOB_ENDED),
)
def cancel_job(request: HttpRequest, name: Name, id: Name) -> JsonResponse:
    """Cancel a waiting job at once.  A running job is asked to stop, and is cancelled unless it succeeds.  409 if the
    job has ended in another state."""
    principal = require(request, Scope.MANAGE, job=name)
    info, archived = find(id, name=name)
    if not archived:
        done = operations.cancel(info.queue, [id])
        if done.count:
            log_job(request, "cancel", info.queue, id, moved=len(done.moved), asked=len(done.asked))
        info, archived = find(id, name=name, queue=info.queue)
    if info.state not in {State.CANCELLED, State.RUNNING}:
        raise Problem(Kind.JOB_ENDED, f"Job {id!r} is {info.state} and cannot be cancelled.")
    return JsonResponse(shown(info, principal, archived=archived))


@router.post(
    "/v1/jobs/{name}/{id}/reschedule",
    response=schemas.Job,
    summary="Reschedule",
    openapi_extra=refuses(Kind.JOB_RUNS, Kind.JOB_ENDED, Kind.JOB_MOVED, Kind.ARCHIVED),
)
def reschedule_job(request: HttpRequest, name: Name, id: Name, body: NewTime) -> JsonResponse:
    """Let a waiting job run at another time.  A job that waits for a retry stays one.  409 if it runs or has ended."""
    principal = require(request, Scope.MANAGE, job=name)
    info = stored(id, name, "enqueue a new job")
    run_at = moment(body.run_after, "run_after")
    if info.state in {State.SCHEDULED, State.RETRY} and info.at == run_at:
        return JsonResponse(shown(info, principal))  # sent again
    if info.state in WAITING and operations.reschedule(info.queue, [id], run_at).moved:
        log_job(request, "reschedule", info.queue, id, run_at=run_at)
    elif info.state in WAITING:
        info = stored(id, name, "enqueue a new job")
        if info.state in WAITING:
            raise Problem(Kind.JOB_MOVED, f"Job {id!r} has just changed its state: it is {info.state}.")
    if info.state not in WAITING:
        kind = Kind.JOB_RUNS if info.state is State.RUNNING else Kind.JOB_ENDED
        raise Problem(kind, f"Job {id!r} is {info.state} and cannot be rescheduled.")
    return JsonResponse(shown(stored(id, name, "enqueue a new job"), principal))


@router.post(
    "/v1/jobs/{name}/{id}/delete",
    response=Deleted,
    summary="Delete",
    openapi_extra=refuses(Kind.JOB_RUNS),
)
def delete_job(request: HttpRequest, name: Name, id: Name) -> JsonResponse:
    """Remove a job that waits or has ended, with all that is known about it.  Its row in the archive stays.  409 if it
    runs.  A job that is not there is deleted already: the call may be sent again."""
    require(request, Scope.MANAGE, job=name)
    found = look(id, name=name)
    if found is not None and not found[1]:
        if operations.delete(found[0].queue, [id]).moved:
            log_job(request, "delete", found[0].queue, id)
        again = look(id, name=name)
        if again is not None and not again[1]:
            raise Problem(Kind.JOB_RUNS, f"Job {id!r} is {again[0].state} and cannot be deleted now. Kill it first.")
    return JsonResponse({"id": id, "name": name, "deleted": True})


def check_retry(info: JobInfo, body: schemas.RetryRequest) -> None:
    """Raise Problem 409 if this job must not be queued again, 422 if the request is incomplete."""
    if info.state is State.SUCCEEDED:
        raise Problem(Kind.JOB_ENDED, f"Job {info.id!r} has succeeded. Replay it to run it again.")
    if body.finished_at is not None and moment(body.finished_at, "finished_at") != info.at:
        raise Problem(
            Kind.END_DIFFERS, f"Job {info.id!r} is {info.state}, but not since {body.finished_at.isoformat()}."
        )
    if not operations.may_have_started(info):
        return
    if not body.start_again:
        raise Problem(
            Kind.MAY_HAVE_STARTED,
            f"Job {info.id!r} is delivered at most once and may have been started. Find out what it has done. "
            'To start it again, send "start_again": true and its "finished_at".',
        )
    if body.finished_at is None:
        raise Problem(
            Kind.INVALID,
            '"start_again" needs "finished_at" as the job shows it, so that a repeated call cannot start it again.',
        )


def stored(id: str, name: str, instead: str) -> JobInfo:
    """Return the job if the store still has it.  Raises Problem 404 or 409."""
    info, archived = find(id, name=name)
    if archived:
        raise Problem(Kind.ARCHIVED, f"Job {id!r} is in the archive and cannot be changed: {instead} instead.")
    return info


def reason(principal: Principal, text: str) -> str:
    """Return the reason for the log of a killed job."""
    by = f"Killed over HTTP by {principal.name}"
    return clean(f"{by}: {text}" if text else by, 600)
