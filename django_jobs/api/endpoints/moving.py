"""More changes of jobs over HTTP: reschedule, delete."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from ninja import Schema
from pydantic import Field

from django_jobs import operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log_job
from django_jobs.api.common.principal import Scope, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Body, Moment, Name
from django_jobs.api.common.serializers import look, shown
from django_jobs.api.endpoints.actions import router, stored
from django_jobs.core.values import WAITING, State
from django_jobs.enqueue.call_options import moment

# These endpoints use the router of the other methods of their URLs: one URL needs one router.
__all__ = ["router"]


class NewTime(Body):
    """When a waiting job shall run."""

    run_after: Moment = Field(description="The job does not start before this time.")


class Deleted(Schema):
    """There is no such job any more, except in the archive."""

    id: str
    name: str
    deleted: bool


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
