"""One verb on all jobs that match a query: preview it, then start it with what the preview showed."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Any, Literal

from django.http import HttpRequest, JsonResponse
from django.utils.crypto import constant_time_compare, salted_hmac
from ninja import Query, Router, Schema
from pydantic import Field

from django_jobs import browse, operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log
from django_jobs.api.common.principal import Principal, Scope, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Body, Moment, Name, Whole
from django_jobs.api.common.serializers import listed
from django_jobs.api.endpoints.actions import reason
from django_jobs.browse.query.parsing import LONGEST, NO_STATE, state_of
from django_jobs.core.values import State
from django_jobs.enqueueing.call_options import moment
from django_jobs.models import audit
from django_jobs.operations import bulk
from django_jobs.operations.matching import SAMPLE, count_matching
from django_jobs.serialization.arguments import canonical
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store

router = Router(tags=["bulk operations"])
#: How long (ms) an operation can be started with a preview.
LIFE = 3_600_000
#: A call drives its operation for about this long (s): small ones end before the answer.
STRETCH = 1.0

Verb = Literal["retry", "cancel", "kill", "delete", "reschedule"]
QUERY = f"{schemas.QUERY} It must name a state, as `state:dead`."

bulk.ended.add(audit.write_end)


class Order(Body):
    """The same as in the preview, and what the preview showed."""

    verb: Verb
    query: str = Field(min_length=1, max_length=LONGEST, description=QUERY)
    matching: Whole = Field(ge=0, le=schemas.MAX_TOKEN, description="`matching` of the preview.")
    preview: str = Field(min_length=1, max_length=200, description="`preview` of the preview.")
    reason: str = Field("", max_length=500, description="Why the jobs are killed.")
    run_after: Moment | None = Field(None, description="For `reschedule`, which needs it.")


class Preview(Schema):
    """Which jobs an operation would take now."""

    verb: str
    query: str
    state: str
    matching: int = Field(description="The number of jobs that match, of those that were checked.")
    whole: bool = Field(description="false: not all jobs were checked in a second; the operation checks all of them.")
    checked: int
    total: int | None = Field(description="Jobs in that state; null if the token is limited to some job types.")
    sample: list[schemas.Job] = Field(description=f"The first {SAMPLE} jobs that match, without `result` and `log`.")
    notes: list[str] = Field(description="What the query could not find, and why.")
    as_of: str = Field(description="Jobs that come into the state later are not taken.")
    preview: str = Field(description="Send it with the operation, within an hour.")


class BulkOperation(Schema):
    """A bulk operation, as far as it is."""

    id: str
    verb: str
    query: str
    state: str
    as_of: str
    finished_at: str | None = Field(description="null: it goes on.")
    stopped: bool
    percent: int
    moved: int = Field(description="The number of jobs that the verb was applied to.")
    asked: int = Field(description="Running jobs that were asked to stop.")
    held: int = Field(
        description="Jobs that stay, because they are delivered at most once and may have been started: retry each by "
        "itself."
    )
    taken: int = Field(description="Jobs that stay, because another job holds their unique key.")


@router.get("/v1/bulk-operations/preview", response=Preview, summary="Preview")
def preview_bulk_operation(
    request: HttpRequest,
    verb: Verb,
    query: Annotated[str, Query(min_length=1, max_length=LONGEST, description=QUERY)],
) -> JsonResponse:
    """Count the jobs that an operation would take now, for a second at most, and show the first of them.  Nothing is
    changed.  A token that is limited to some job types finds, and acts on, jobs of these only."""
    principal = require(request, Scope.MANAGE)
    state, match = chosen(verb, query, principal)
    as_of = get_store().now()
    found = count_matching(state, match)
    return JsonResponse(
        {
            "verb": verb,
            "query": query,
            "state": state,
            "matching": found.matching,
            "whole": found.whole,
            "checked": found.seen,
            "total": None if principal.jobs else found.total,
            "sample": [listed(info, principal) for info in found.sample],
            "notes": found.notes.sentences(),
            "as_of": iso(as_of),
            "preview": signed(verb, query, principal, found.matching, as_of),
        }
    )


@router.put(
    "/v1/bulk-operations/{id}",
    response={200: BulkOperation, 201: BulkOperation},
    summary="Start",
    openapi_extra=refuses(Kind.ID_USED, Kind.PREVIEW_DIFFERS),
)
def start_bulk_operation(request: HttpRequest, id: Name, body: Order) -> JsonResponse:
    """Apply the verb to all jobs that match and were in the state when the preview was made.  A small operation has
    ended when the answer comes; a large one goes on in the background, while a worker runs.  It is safe to send the
    call again: 201 the first time, then 200 and how far the operation is.  409 if the preview was of another verb,
    query or number, or is more than an hour old."""
    principal = require(request, Scope.MANAGE)
    key, as_of = key_of(principal, id), time_of(body.preview)
    details = details_of(body, principal)
    operation = bulk.get(key)
    is_new = operation is None
    if operation is None:
        state, match = chosen(body.verb, body.query, principal)
        check_preview(body, principal, as_of)
        asked = {**details, "query": body.query, "over_http": True}
        try:
            verb = operations.verb_of(body.verb)
            operation = bulk.start(verb, state, match, user=principal.name, id=key, as_of=as_of, **asked)
        except bulk.Exists:  # the same call at the same moment
            operation, is_new = own(principal, id), False
    check_same(operation, body, id, as_of, details)
    if not operation.finished:
        bulk.drive(key, STRETCH)
        bulk.tell_ended()
        operation = bulk.get(key) or operation
        if is_new and not operation.finished:
            log(request, operation.verb, audit.ObjectKind.BULK, key, **audit.bulk_details(operation))
    return JsonResponse(described(operation, id), status=201 if is_new else 200)


@router.get("/v1/bulk-operations/{id}", response=BulkOperation, summary="Look")
def get_bulk_operation(request: HttpRequest, id: Name) -> JsonResponse:
    """Return how far an operation is that this token has started.  It is kept for a week after its end."""
    return JsonResponse(described(own(require(request, Scope.MANAGE), id), id))


@router.delete("/v1/bulk-operations/{id}", response=BulkOperation, summary="Stop")
def stop_bulk_operation(request: HttpRequest, id: Name) -> JsonResponse:
    """Stop an operation after the batch that it is at.  What it has done stays done.  No effect on one that has
    ended."""
    principal = require(request, Scope.MANAGE)
    operation = own(principal, id)
    if bulk.stop(operation.id):
        log(request, "stop", audit.ObjectKind.BULK, operation.id)
        operation = own(principal, id)
    return JsonResponse(described(operation, id))


def chosen(verb: str, query: str, principal: Principal) -> tuple[State, browse.Match]:
    """Return the state and the filters that a query stands for.  Raises InvalidQuery, UnknownQueue, or Problem."""
    state = state_of(query)
    if state is None:
        raise Problem(Kind.INVALID, NO_STATE)
    if state not in operations.VERBS[operations.verb_of(verb)]:
        raise Problem(Kind.INVALID, f"{verb} does not apply to jobs that are {state}.")
    types = json.dumps(sorted(principal.jobs)) if principal.jobs else ""
    match = browse.Match(arguments=principal.may(Scope.READ), types=types).asked(query, state)
    if match.queue:
        operations.check_queue(match.queue)
    return state, match


def details_of(body: Order, principal: Principal) -> dict[str, Any]:
    """Return what the verb needs to know.  Raises Problem, or InvalidArguments for a time that no calendar has."""
    if (body.verb == "reschedule") != (body.run_after is not None):
        raise Problem(Kind.INVALID, "`run_after` goes with the verb reschedule, which needs it.")
    if body.reason and body.verb != "kill":
        raise Problem(Kind.INVALID, "`reason` goes with the verb kill.")
    return {
        "run_at": 0 if body.run_after is None else moment(body.run_after, "run_after"),
        "reason": reason(principal, body.reason) if body.verb == "kill" else "",
    }


def signed(verb: str, query: str, principal: Principal, matching: int, as_of: int) -> str:
    """Return the text by which we know again what we have shown to whom, and when."""
    said = canonical([principal.name, sorted(principal.jobs), verb, query, matching, as_of], "preview")
    return f"{as_of}.{salted_hmac('django_jobs.preview', said, algorithm='sha256').hexdigest()[:32]}"


def time_of(preview: str) -> int:
    """Return the time (ms) of a preview; 0 if the text is no preview."""
    at, _, _ = preview.partition(".")
    return int(at) if at.isascii() and at.isdigit() and len(at) < 16 else 0


def check_preview(body: Order, principal: Principal, as_of: int) -> None:
    """Raise Problem 409 unless this caller has seen this number of jobs for this verb and query within the hour."""
    if not constant_time_compare(body.preview, signed(body.verb, body.query, principal, body.matching, as_of)):
        raise Problem(
            Kind.PREVIEW_DIFFERS,
            "Send verb, query, `matching` and `preview` as in the preview that this token got.",
        )
    if not get_store().now() - LIFE <= as_of:
        raise Problem(Kind.PREVIEW_DIFFERS, "The preview is more than an hour old. Ask for another one.")


def check_same(operation: bulk.Operation, body: Order, id: str, as_of: int, details: dict[str, Any]) -> None:
    """Raise Problem 409 unless this call could have started the operation."""
    called = (operations.verb_of(body.verb), body.query, as_of, details["run_at"], details["reason"])
    if called != (operation.verb, operation.query, operation.started, operation.run_at, operation.reason):
        raise Problem(Kind.ID_USED, f"The id {id!r} belongs to another bulk operation. Choose another id.")


def key_of(principal: Principal, id: str) -> str:
    """Return the id under which an operation is stored: each token has ids of its own."""
    return sha256(canonical([principal.name, id], "id")).hexdigest()[:32]


def own(principal: Principal, id: str) -> bulk.Operation:
    """Return an operation of this caller.  Raises Problem 404."""
    operation = bulk.get(key_of(principal, id))
    if operation is None:
        raise Problem(Kind.NO_OPERATION, f"{principal.name!r} has no bulk operation {id!r}.")
    return operation


def described(operation: bulk.Operation, id: str) -> dict[str, Any]:
    """Return an operation as shown.  The number of jobs that it has checked may be one of all job types."""
    return {
        "id": id,
        "verb": operations.word_of(operation.verb),
        "query": operation.query,
        "state": operation.state,
        "as_of": iso(operation.started),
        "finished_at": iso(operation.finished),
        "stopped": operation.stopped,
        "percent": operation.percent,
        **{key: getattr(operation, key) for key in ("moved", "asked", "held", "taken")},
    }
