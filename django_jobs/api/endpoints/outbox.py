"""The outbox over HTTP: list its entries, send one again, delete one."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, JsonResponse
from ninja import Path, Query, Router

from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Principal, Scope, caller, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.serializers import data_of
from django_jobs.models import audit
from django_jobs.operations import kept
from django_jobs.outbox import EntryKind
from django_jobs.remote import known

router = Router(tags=["outbox"])
Id = Annotated[int, Path(ge=1, le=kept.LARGEST, description="The `id` of the entry.")]


@router.get("/v1/outbox", response=schemas.OutboxPage, summary="List")
def list_entries(
    request: HttpRequest,
    held: Annotated[
        bool | None, Query(description="true: only entries that wait for a decision; false: others.")
    ] = None,
    cursor: Annotated[int, Query(ge=0, le=kept.LARGEST, description="The `cursor` of the previous page.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> JsonResponse:
    """List the entries of the outbox, the oldest first: what was enqueued in a transaction and is not in the store.
    A caller that is limited to some job types sees only entries of these."""
    principal = require(request, Scope.READ)
    rows, following = kept.page(held, cursor, limit, sorted(principal.jobs))
    return JsonResponse({"entries": [shown(row, principal) for row in rows], "cursor": following or None})


@router.post(
    "/v1/outbox/{id}/send",
    response=schemas.OutboxEntry,
    summary="Send again",
    openapi_extra=refuses(Kind.MAY_RUN_TWICE),
)
def send_entry(request: HttpRequest, id: Id, body: schemas.SendRequest | None = None) -> JsonResponse:
    """Let workers send a held entry.  An entry that waits already is not changed, so it is safe to send the call again.
    404 once the entry has left the outbox: it was sent, or deleted.  409 if the entry is older than IDEMPOTENCY, unless
    `run_twice` is true: if it was sent before, it would run twice."""
    row, principal = allowed(request, id)
    if row is None:
        raise Problem(Kind.NO_ENTRY, f"There is no entry {id} in the outbox: it was sent, or deleted.")
    acted = kept.send([id], run_twice=body is not None and body.run_twice)
    if acted.old:
        raise Problem(
            Kind.MAY_RUN_TWICE,
            f"Entry {id} is older than IDEMPOTENCY: if it was sent before, it would run twice. Find out whether it did "
            'run. To send it, send "run_twice": true.',
        )
    if changed := kept.waits_for_somebody(acted.done):
        log(request, "send", changed)
    return JsonResponse(shown(next(iter(kept.rows().filter(pk=id)), row), principal))


@router.delete("/v1/outbox/{id}", response=schemas.RemovedEntry, summary="Delete")
def delete_entry(request: HttpRequest, id: Id) -> JsonResponse:
    """Delete an entry: what it holds is never sent, unless a worker is sending it at this moment.  An entry that is not
    there has left the outbox already: the call may be sent again."""
    row, _principal = allowed(request, id)
    if row is not None and (done := kept.delete([id]).done):
        log(request, "delete", done)
    return JsonResponse({"id": id, "deleted": True})


def allowed(request: HttpRequest, id: int) -> tuple[Any, Principal]:
    """Return the entry (None if there is none) and the caller.  Raises Problem 403 if the caller may not manage it."""
    principal = require(request, Scope.MANAGE)
    row = next(iter(kept.rows().filter(pk=id)), None)
    if row is not None and principal.jobs and (row.kind != EntryKind.JOB or not principal.knows(row.name)):
        raise Problem(
            Kind.JOB_NOT_ALLOWED, f"{principal.name!r} may not use this entry: it may use only some job types."
        )
    return row, principal


def shown(row: Any, principal: Principal) -> dict[str, Any]:
    payload = kept.entry_payload(row, show_arguments=principal.may(Scope.READ))
    args, kwargs = payload.pop("args"), payload.pop("kwargs")
    payload["data"] = None if args is None else data_of(args, kwargs, remote=row.name in known())
    return payload


def log(request: HttpRequest, verb: str, rows: Any) -> None:
    """Write an entry of the audit log in the name of the caller."""
    audit.record(caller(request).name, audit.Source.HTTP, audit.outbox_act(verb, rows))
