"""Schedules over HTTP: list, run now, pause, resume."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, JsonResponse
from ninja import Path, Query, Router

from django_jobs import schedules
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log
from django_jobs.api.common.principal import Principal, Scope, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Name
from django_jobs.api.common.serializers import shown
from django_jobs.api.endpoints.requested import in_history
from django_jobs.core.values import Added, JobInfo
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.models.audit import ObjectKind, run_details
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.schedules.listing import digest_of_run
from django_jobs.serialization.record import job_in
from django_jobs.stores import get_store

router = Router(tags=["schedules"])
#: Ids contain names of jobs, which may have slashes.
Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:/-]{1,255}$", description="`id` of the schedule.")]


@router.get("/v1/schedules", response=schemas.SchedulePage, summary="List")
def list_schedules(
    request: HttpRequest,
    cursor: Annotated[str, Query(max_length=255, description="The `cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    day: Annotated[bool, Query(description="Add the times of the last 24 hours and the next 24.")] = False,
) -> JsonResponse:
    """List all schedules by id: the next runs, whether it is paused, and why it cannot run."""
    principal = require(request, Scope.READ)
    known = sorted((entry for entry in schedules.entries() if principal.knows(entry.job)), key=lambda entry: entry.id)
    rest = [entry for entry in known if entry.id > cursor]
    page = rest[:limit]
    following = page[-1].id if len(rest) > limit else None
    found = schedules.described(page)
    if day:
        found = [each | times.payload() for each, times in zip(found, schedules.days(page), strict=True)]
    return JsonResponse({"schedules": found, "cursor": following})


# Before the two below: a run may have the id "pause" or "resume", and the first address that fits answers.
@router.put(
    "/v1/schedules/{path:schedule}/runs/{id}",
    response={200: schemas.Job, 201: schemas.Job},
    summary="Run now",
    openapi_extra=refuses(Kind.ID_USED, Kind.KEY_USED, Kind.JOB_MOVED, Kind.SCHEDULE_INVALID),
)
def run_schedule(request: HttpRequest, schedule: Id, id: Name, body: schemas.Nothing | None = None) -> JsonResponse:
    """Enqueue the job of the schedule once, now, under an id that you choose.  It is safe to send the call again: 201
    the first time, then 200 and the same job.  409 if the id exists and is not a run of this schedule."""
    entry, principal = allowed(request, schedule)
    (archived,) = in_history([(id, schedules.queue_of(entry), entry.job)])
    if archived is not None:
        check_run(archived, entry)
        return JsonResponse(shown(archived, principal, archived=True))
    handle = schedules.run_now(entry, job_id=id, on_commit=False)
    if handle.added in (Added.ADDED, Added.REPLACED):
        log(request, "run", ObjectKind.SCHEDULE, entry.id, **run_details(handle))
    if handle.added in (Added.DUPLICATE, Added.REPLACED):
        raise Problem(Kind.KEY_USED, f"An equal {entry.job} job is already waiting.", outcome=handle.added.value)
    info = get_store().find([handle.queue], id)
    if info is None:
        return JsonResponse(gone(entry, handle))
    if handle.added is not Added.ADDED:
        check_run(info, entry)
    return JsonResponse(shown(info, principal), status=201 if handle.added is Added.ADDED else 200)


@router.post("/v1/schedules/{path:schedule}/pause", response=schemas.Schedule, summary="Pause")
def pause_schedule(request: HttpRequest, schedule: Id, body: schemas.Nothing | None = None) -> JsonResponse:
    """Stop the schedule until it is resumed.  Jobs that are already enqueued still run."""
    entry, _ = allowed(request, schedule)
    if schedules.pause(entry):
        log(request, "pause", ObjectKind.SCHEDULE, entry.id)
    return JsonResponse(schedules.described([entry])[0])


@router.post("/v1/schedules/{path:schedule}/resume", response=schemas.Schedule, summary="Resume")
def resume_schedule(request: HttpRequest, schedule: Id, body: schemas.Nothing | None = None) -> JsonResponse:
    """Start the schedule again.  Runs that were missed in the pause do not run later."""
    entry, _ = allowed(request, schedule)
    if schedules.resume(entry):
        log(request, "resume", ObjectKind.SCHEDULE, entry.id)
    return JsonResponse(schedules.described([entry])[0])


def allowed(request: HttpRequest, schedule: str) -> tuple[ScheduleEntry, Principal]:
    """Return the schedule, and the caller if it may manage it.  Raises UnknownSchedule, or Problem 403."""
    require(request, Scope.MANAGE)
    entry = schedules.get_entry(schedule)
    return entry, require(request, Scope.MANAGE, job=entry.job)


def gone(entry: ScheduleEntry, handle: JobHandle) -> dict[str, Any]:
    """Return an earlier run with this id, which has left the history.  Raises Problem 409."""
    known = get_store().remembered(handle.queue, handle.id)
    if known is None or known.state is None:
        raise Problem(Kind.JOB_MOVED, f"Job {handle.id!r} leaves the history at this moment. Send the call again.")
    if known.digest != digest_of_run(entry):
        raise Problem(Kind.ID_USED, f"The id {handle.id!r} was used for another job. Choose another id.")
    return {"id": handle.id, "name": handle.name, "queue": handle.queue, "state": known.state, "archived": False}


def check_run(info: JobInfo, entry: ScheduleEntry) -> None:
    """Raise Problem 409 unless the job with this id is a run of that schedule."""
    job = job_in(info)
    if job is None or (job.meta or {}).get("schedule") != entry.id:
        raise Problem(Kind.ID_USED, f"The id {info.id!r} exists and is not a run of {entry.id!r}. Choose another id.")
