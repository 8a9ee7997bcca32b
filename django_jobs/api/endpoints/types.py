"""Job types over HTTP: those in Python with api=True, and remote ones, which can be created, changed and removed."""

from __future__ import annotations

from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db import router as router_of_models
from django.http import HttpRequest, JsonResponse
from ninja import Query, Router

from django_jobs import operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log
from django_jobs.api.common.principal import Principal, Scope, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Name
from django_jobs.api.endpoints.numbers import few_queues
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.models import RemoteJobType
from django_jobs.models.audit import ObjectKind
from django_jobs.remote import forget, known
from django_jobs.remote.job_types import RemoteType
from django_jobs.samples.times import PERIODS

router = Router(tags=["job types"])


@router.get("/v1/job-types", response=list[schemas.JobType], summary="List")
def list_types(request: HttpRequest) -> JsonResponse:
    """List the job types that the API offers to this caller."""
    principal = require(request, Scope.READ, Scope.ENQUEUE, Scope.WORK)
    types = [local_type(definition) for definition in registry.all_definitions() if definition.api]
    types += [remote_type(kind, principal) for kind in known().values()]
    return JsonResponse(
        [kind for kind in sorted(types, key=lambda kind: str(kind["name"])) if principal.knows(kind["name"])],
        safe=False,
    )


@router.get("/v1/job-types/{name}", response=schemas.JobType, summary="Get")
def get_type(
    request: HttpRequest,
    name: Name,
    times: Annotated[bool, Query(description="Add `run_times`; needs the scope read.")] = False,
    queue: Annotated[str, Query(max_length=255, description="Run times in this queue only.")] = "",
) -> JsonResponse:
    """Get one job type.  With `times`, also how long its attempts waited and ran in the last day and week, those that
    failed included.  With more than 20 queues, `queue` is needed for that."""
    principal = require(request, *((Scope.READ,) if times else (Scope.READ, Scope.ENQUEUE, Scope.WORK)), job=name)
    found = offered(name, principal)
    if times:
        few_queues(queue)
        found["run_times"] = {
            period: [each.payload() for each in operations.run_times(period, name=name, queue=queue)]
            for period in PERIODS
        }
    return JsonResponse(found)


def offered(name: str, principal: Principal) -> dict[str, Any]:
    """Return the type as shown.  Raises Problem 404 if the API does not offer it."""
    kind = known().get(name)
    if kind is not None:
        return remote_type(kind, principal)
    for definition in registry.all_definitions():
        if definition.name == registry.current_name(name) and definition.api:
            return local_type(definition)
    raise Problem(Kind.NO_JOB_TYPE, f"The API offers no job type {name!r}.")


@router.post(
    "/v1/job-types",
    response={200: schemas.JobType, 201: schemas.JobType},
    summary="Create a remote type",
    openapi_extra=refuses(Kind.NAME_USED),
)
def create_type(request: HttpRequest, body: schemas.NewType) -> JsonResponse:
    """Create a remote job type.  If it has a URL, its jobs are posted there; if not, workers claim them.  Every worker
    knows the type within five seconds.  It is safe to send the call again: 200 and the same type.  409 if another type
    has the name.  A URL needs the scope `targets`, too."""
    principal = require(request, Scope.MANAGE, job=body.name)
    if body.url:
        require(request, Scope.TARGETS)
    row = RemoteJobType(**body.dict())
    if registry.has(body.name):
        raise Problem(Kind.NAME_USED, f"There already is a job type {body.name!r}.")
    if RemoteJobType.objects.filter(name=body.name).exists():
        return same_type(body, principal)
    try:
        row.full_clean()
        with transaction.atomic(using=router_of_models.db_for_write(RemoteJobType)):
            row.save(force_insert=True)
    except ValidationError as error:
        if RemoteJobType.objects.filter(name=body.name).exists():  # the same call at the same moment
            return same_type(body, principal)
        raise Problem(
            Kind.INVALID, "The remote job type is not valid; see `errors`.", errors=error.message_dict
        ) from error
    except IntegrityError:
        return same_type(body, principal)
    forget()
    log(request, "create", ObjectKind.JOB_TYPE, body.name)
    return JsonResponse(remote_type(type_of(row), principal), status=201)


def same_type(body: schemas.NewType, principal: Principal) -> JsonResponse:
    """Return the existing type of that name.  Raises Problem 409 unless this call could have made it."""
    row = RemoteJobType.objects.filter(name=body.name).first()
    if row is None or any(getattr(row, field) != value for field, value in body.dict().items()):
        raise Problem(Kind.NAME_USED, f"There is another job type {body.name!r} already.")
    forget()
    return JsonResponse(remote_type(type_of(row), principal))


@router.patch(
    "/v1/job-types/{name}",
    response=schemas.JobType,
    summary="Change a remote type",
    openapi_extra=refuses(Kind.NOT_REMOTE, Kind.HAS_CREDENTIALS),
)
def change_type(request: HttpRequest, name: Name, body: schemas.TypeChanges) -> JsonResponse:
    """Change some fields of a remote job type.  Every worker knows the change within five seconds; attempts that run
    keep their time limit.  Jobs that were enqueued before keep their queue, their delivery and their number of
    attempts.  It is safe to send the call again.  A URL needs the scope `targets`, too; 409 for a new one if the type
    has credentials: only the admin may send these to another address."""
    principal = require(request, Scope.MANAGE, job=name)
    if "url" in body.dict(exclude_unset=True):  # whoever sets it reads the arguments of the jobs
        require(request, Scope.TARGETS)
    row = remote_row(name)
    changes = {field: value for field, value in body.dict(exclude_unset=True).items() if getattr(row, field) != value}
    # A URL may contain a password.
    told = {field: [] if field == "url" else [getattr(row, field), value] for field, value in changes.items()}
    for field, value in changes.items():
        setattr(row, field, value)
    try:
        row.full_clean()
    except ValidationError as error:
        raise Problem(
            Kind.INVALID, "The remote job type would not be valid; see `errors`.", errors=error.message_dict
        ) from error
    rows = RemoteJobType.objects.filter(name=name)
    if "url" in changes:  # with this condition, credentials that the admin adds at this moment are safe, too
        rows = rows.filter(credentials="")
    if changes and not rows.update(**changes):
        remote_row(name)
        raise Problem(Kind.HAS_CREDENTIALS, f"{name!r} has credentials. Change its URL in the admin.")
    forget()
    if changes:
        log(request, "change", ObjectKind.JOB_TYPE, name, changes=told)
    return JsonResponse(remote_type(type_of(row), principal))


@router.delete(
    "/v1/job-types/{name}",
    response=schemas.RemovedType,
    summary="Remove a remote type",
    openapi_extra=refuses(Kind.NOT_REMOTE),
)
def remove_type(request: HttpRequest, name: Name) -> JsonResponse:
    """Remove a remote job type.  Its waiting jobs stay, and wait until there is a type of that name again; attempts
    that run may still be reported.  A type that is not there is removed already: the call may be sent again."""
    require(request, Scope.MANAGE, job=name)
    refuse_local(name)
    if RemoteJobType.objects.filter(name=name).delete()[0]:
        log(request, "delete", ObjectKind.JOB_TYPE, name)
    forget()
    return JsonResponse({"name": name, "deleted": True})


def remote_row(name: str) -> RemoteJobType:
    """Return the row of a remote type.  Raises Problem 404, or 409 for a type written in Python."""
    refuse_local(name)
    row = RemoteJobType.objects.filter(name=name).first()
    if row is None:
        raise Problem(Kind.NO_JOB_TYPE, f"There is no remote job type {name!r}.")
    return row


def refuse_local(name: str) -> None:
    """Raise Problem if it is a type written in Python: 409 if the API offers it, otherwise as if it did not exist."""
    if name in known() or name not in registry.names():
        return
    if not registry.get(name).api:
        raise Problem(Kind.NO_JOB_TYPE, f"The API offers no job type {name!r}.")
    raise Problem(Kind.NOT_REMOTE, f"{name!r} is written in Python. Change it in the code of the project.")


def type_of(row: RemoteJobType) -> RemoteType:
    """Return what `known` will return for the row.  A read could fail, or find that another call has removed it."""
    return RemoteType(*(getattr(row, field) for field in RemoteType._fields))


def remote_type(kind: RemoteType, principal: Principal) -> dict[str, Any]:
    """Return a remote type as shown.  Its URL, which may lead to a private address, is for callers that may see or
    manage jobs; the name of its credentials is only for administrators."""
    shown = {"url": kind.url or None} if principal.may(Scope.READ) or principal.may(Scope.MANAGE) else {}
    same = ("name", "queue", "delivery_strategy", "attempts", "concurrency", "timeout", "per_minute")
    way = "posted" if kind.url else "fetched"
    return {field: getattr(kind, field) for field in same} | {"way": way, **shown, "remote": True}


def local_type(definition: JobDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "queue": definition.queue,
        "delivery_strategy": definition.delivery,
        "attempts": definition.stored_options.max_attempts,
        "concurrency": definition.max_concurrency,
        "timeout": definition.timeout,
        "per_minute": None,
        "way": "django",
        "url": None,
        "remote": False,
    }
