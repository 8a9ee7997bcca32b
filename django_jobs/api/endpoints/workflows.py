"""Workflows and batches over HTTP: list, look, cancel, retry.

The caller needs the scope for all job types, because a workflow has jobs of several."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, JsonResponse
from ninja import Path, Query, Router

from django_jobs import browse, operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log
from django_jobs.api.common.cursors import not_a_cursor
from django_jobs.api.common.principal import Scope, require_all_jobs
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.exceptions import JobMoved
from django_jobs.models.audit import ObjectKind

router = Router(tags=["workflows"])
Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{1,64}$", description="The id of a workflow or batch.")]
State = Literal["", "running", "succeeded", "stopped", "cancelled"]
#: Ids of jobs in an answer about a retry.
IDS = 100


@router.get("/v1/workflows", response=schemas.WorkflowPage, summary="List")
def list_workflows(
    request: HttpRequest,
    state: Annotated[State, Query(description="Only those in this state.")] = "",
    kind: Annotated[Literal["", "workflow", "batch"], Query(description="Only workflows, or only batches.")] = "",
    cursor: Annotated[str, Query(max_length=255, description="The `cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> JsonResponse:
    """List workflows and batches, newest first.  A page may have fewer than `limit`; only the last page has no
    cursor."""
    require_all_jobs(request, Scope.READ)
    try:
        found = browse.find_workflows(state, kind, cursor, limit)
    except ValueError as error:
        raise not_a_cursor(cursor) from error
    rows = [browse.workflow_payload(info) for info in found.rows]
    return JsonResponse({"workflows": rows, "cursor": found.following or None})


@router.get("/v1/workflows/{id}", response=schemas.Workflow, summary="Look")
def get_workflow(request: HttpRequest, id: Id) -> JsonResponse:
    """Return one workflow or batch: its state, its progress, and how many steps are in each state."""
    require_all_jobs(request, Scope.READ)
    return JsonResponse(browse.workflow_payload(browse.workflow(id)))


@router.get("/v1/workflows/{id}/steps", response=schemas.StepPage, summary="Steps")
def list_steps(
    request: HttpRequest,
    id: Id,
    cursor: Annotated[str, Query(max_length=255, description="The `cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> JsonResponse:
    """List the steps of a workflow by number, or the jobs of a batch in no particular order; with the states of their
    jobs."""
    require_all_jobs(request, Scope.READ)
    info = browse.workflow(id)
    try:
        if info.kind == "batch":
            steps, following = browse.batch_jobs(info, after=cursor, limit=limit)
        else:
            first = min(position(cursor), info.total)
            steps = browse.steps(id, first, limit)
            following = str(first + limit) if first + limit < info.total else ""
    except ValueError as error:
        raise not_a_cursor(cursor) from error
    jobs = browse.jobs_of(steps)
    rows = [browse.step_payload(step, jobs.get(step.job_id)) for step in steps]
    return JsonResponse({"steps": rows, "cursor": following or None})


def position(cursor: str) -> int:
    """Return the number of the step at which a page begins.  Raises ValueError."""
    if cursor and not (cursor.isascii() and cursor.isdigit()):
        raise ValueError(f"{cursor!r:.100} is no number")
    return int(cursor or 0)


@router.post(
    "/v1/workflows/{id}/cancel",
    response=schemas.Workflow,
    summary="Cancel",
    openapi_extra=refuses(Kind.WORKFLOW_ENDED),
)
def cancel_workflow(request: HttpRequest, id: Id, body: schemas.Nothing | None = None) -> JsonResponse:
    """Cancel what waits in it, and ask what runs to stop.  One that is stopped cannot be retried after that.  It is
    safe to send the call again.  409 if it has succeeded."""
    require_all_jobs(request, Scope.MANAGE)
    cancelled = operations.cancel_workflow(id)
    info = browse.workflow(id)
    if cancelled:
        log(request, "cancel", ObjectKind.WORKFLOW, id, name=info.name)
    if info.state != "cancelled":
        raise Problem(Kind.WORKFLOW_ENDED, f"The {info.kind} {id} has ended: it is {info.state}.")
    return JsonResponse(browse.workflow_payload(info))


@router.post(
    "/v1/workflows/{id}/retry",
    response=schemas.RetriedWorkflow,
    summary="Retry",
    openapi_extra=refuses(Kind.WORKFLOW_ENDED),
)
def retry_workflow(request: HttpRequest, id: Id, body: schemas.Nothing | None = None) -> JsonResponse:
    """Queue the jobs of its dead, expired and cancelled steps again, so that it goes on.  Sent again while they wait or
    run, it has no effect.  Jobs that are delivered at most once and may have been started are only listed in `held`:
    retry each with its own call.  In `taken` are jobs that stay because another job holds their unique key, with the
    id of that job.  409 if the workflow was cancelled."""
    require_all_jobs(request, Scope.MANAGE)
    try:
        moved = operations.retry_workflow(id)
    except JobMoved as error:
        raise Problem(Kind.WORKFLOW_ENDED, str(error)) from error
    staying = operations.staying_steps(id)
    held, taken = [job_id for _queue, job_id in staying.held][:IDS], dict([*staying.taken.items()][:IDS])
    if moved:
        log(request, "retry", ObjectKind.WORKFLOW, id, moved=len(moved), held=len(held), taken=len(taken))
    answer: dict[str, Any] = browse.workflow_payload(browse.workflow(id))
    answer |= {"restarted": operations.restarted_steps(id)[:IDS], "held": held, "taken": taken}
    return JsonResponse(answer)
