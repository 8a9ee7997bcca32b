"""Many jobs in one call: enqueue them, extend their claims, or report ends of attempts.  Each has its own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any

from django.http import HttpRequest, JsonResponse
from ninja import Header

from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Principal, Scope, check_known, require
from django_jobs.api.common.problems import Kind, Problem, as_problem, document
from django_jobs.api.common.serializers import queue_of, stored
from django_jobs.api.endpoints import work
from django_jobs.api.endpoints.actions import router
from django_jobs.api.endpoints.requested import (
    accepted,
    answer_again,
    different,
    digest_of,
    equal_waits,
    in_history,
    new_request,
    offered,
    same,
)
from django_jobs.core.values import Added, Claim, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.enqueueing.submit import submit_separately
from django_jobs.exceptions import JobsError, NotKnownYet, StoreError
from django_jobs.execution.remote_reports import fail_many, succeed_many
from django_jobs.remote import known, look_for
from django_jobs.serialization.arguments import canonical
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store

# These endpoints use the router of the other methods of their URLs: one URL needs one router.
__all__ = ["router"]
#: A status and a job, or what is wrong with the item.
Answer = tuple[int, dict[str, Any]] | Exception
#: These concern the whole call: it is sent again when they are over.
FOR_ALL = (StoreError, NotKnownYet)


@router.post("/v1/jobs", response=schemas.BulkEnqueuedAll, summary="Enqueue many")
def put_jobs(
    request: HttpRequest,
    body: schemas.BulkJobs,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            description="Any text; items without an id get one that is made from it, the token's name and their place.",
        ),
    ] = None,
) -> JsonResponse:
    """Add up to 1,000 jobs of any types.  Each has the answer that a PUT of this job alone would have: one that is
    refused does not keep the others out.  It is safe to send the call again: 201 becomes 200.  After a 503, some jobs
    may be stored: send the same call again.  A queue with a limit accepts as many as it has room for, or none."""
    principal = require(request, Scope.ENQUEUE)
    look_for(item.name for item in body.jobs if principal.knows(item.name))
    ids = [item.id or made_of(principal, key, place) for place, item in enumerate(body.jobs)]
    answers = enqueue(principal, body.jobs, ids)
    return JsonResponse({"jobs": [described(request, *each) for each in zip(body.jobs, ids, answers, strict=True)]})


def made_of(principal: Principal, key: str | None, place: int) -> str | None:
    """Return the id of an item without one; None without an Idempotency-Key."""
    return None if key is None else sha256(canonical([principal.name, key, place], "key")).hexdigest()[:32]


def enqueue(principal: Principal, items: Sequence[schemas.BulkJob], ids: Sequence[str | None]) -> list[Answer]:
    """Enqueue the items: one call to the store and one query of the archive per queue, and answers in their order."""
    answers: dict[int, Answer] = {}
    new: dict[int, NewJobRequest] = {}
    digests: dict[int, str] = {}
    #: queue and id → the place of the item that has them.
    firsts: dict[tuple[str, str], int] = {}
    again: dict[int, int] = {}
    for place, (item, id) in enumerate(zip(items, ids, strict=True)):
        try:
            made, digests[place] = requested(principal, item, id)
        except (Problem, JobsError) as error:
            if isinstance(error, FOR_ALL):
                raise
            answers[place] = error
            continue
        assert made.id is not None
        if (first := firsts.setdefault((made.queue, made.id), place)) == place:
            new[place] = made
        else:
            again[place] = first
    wanted = [(str(each.id), each.queue, each.definition.name) for each in new.values()]
    for place, info in zip([*new], in_history(wanted), strict=True):
        if info is not None:
            answers[place] = answered(same, info, items[place].name, digests[place], principal, archived=True)
            del new[place]
    answers.update(submitted(principal, new, digests))
    for place, first in again.items():
        answer = answers[first]
        if digests[place] != digests[first]:
            answers[place] = different(str(ids[place]))
        else:  # the job is there now
            answers[place] = answer if isinstance(answer, Exception) else (200, answer[1])
    return [answers[place] for place in range(len(items))]


def requested(principal: Principal, item: schemas.BulkJob, id: str | None) -> tuple[NewJobRequest, str]:
    """Return the request for one item, and its digest.  Raises Problem, or an error in the item."""
    check_known(principal, item.name)
    if id is None:
        raise Problem(Kind.INVALID, "Send an id for the job, or the header Idempotency-Key for all of them.")
    definition = offered(item.name)
    digest = digest_of(definition, item, principal)
    return new_request(definition, item.name, id, item, digest), digest


def submitted(principal: Principal, new: Mapping[int, NewJobRequest], digests: Mapping[int, str]) -> dict[int, Answer]:
    """Send the requests to the store, and return their answers by place."""
    answers: dict[int, Answer] = {}
    exist: dict[int, JobHandle] = {}
    for (place, each), handle in zip(new.items(), submit_separately(new.values()), strict=True):
        if isinstance(handle, JobsError):
            answers[place] = handle
        elif handle.added is Added.ADDED:
            answers[place] = 201, accepted(each, handle, principal)
        elif handle.added is Added.EXISTS:
            exist[place] = handle
        else:
            answers[place] = equal_waits(each.name, handle)
    for queue in {handle.queue for handle in exist.values()}:
        places = {handle.id: place for place, handle in exist.items() if handle.queue == queue}
        found = stored(queue, list(places))
        for place in places.values():
            answers[place] = answered(answer_again, found, new[place], exist[place], digests[place], principal)
    return answers


def answered(known: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> Answer:
    """Return the answer for an item whose id a job has: that of `known`, or the Problem that it raises."""
    try:
        return 200, known(*args, **options)
    except Problem as problem:
        return problem


def described(request: HttpRequest, item: schemas.BulkJob, id: str | None, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return refused(request, item.name, id, answer)
    return {"name": item.name, "id": id, "status": answer[0], "job": answer[1]}


def refused(request: HttpRequest, name: str, id: str | None, error: Exception) -> dict[str, Any]:
    """Return the answer for an item with which something is wrong."""
    problem = as_problem(request, error)
    shown = document(problem.kind, problem.detail, **problem.more)
    return {"name": name, "id": id, "status": problem.kind.status, "problem": shown}


@router.post("/v1/extensions", response=schemas.BulkExtendedAll, summary="Extend many", tags=["work"])
def extend_many(request: HttpRequest, body: schemas.BulkExtensions) -> JsonResponse:
    """Extend up to 100 claims of jobs of any types.  Each has the answer that extend alone would have: one that is lost
    does not keep the others from being extended."""
    principal = require(request, Scope.WORK)
    answers: list[dict[str, Any]] = []
    for each in body.extensions:
        try:
            check_known(principal, each.name)
            extended = work.prolong(each.name, each.id, each)
            answers.append({"name": each.name, "id": each.id, "status": 200, **extended})
        except (Problem, JobsError) as error:
            if isinstance(error, FOR_ALL):
                raise
            answers.append(refused(request, each.name, each.id, error))
    return JsonResponse({"extensions": answers})


@router.post("/v1/reports", response=schemas.BulkReported, summary="Report many", tags=["work"])
def report_many(request: HttpRequest, body: schemas.BulkReports) -> JsonResponse:
    """Report how up to 1,000 attempts of jobs of any types ended.  Each has the status that its report alone would
    have, and a 409 (`attempt-over`) of one changes nothing for the others.  After any other answer than 200, or none,
    send the same call again, unchanged: each report counts once."""
    principal = require(request, Scope.WORK)
    digests = [work.digest_of(report) for report in body.reports]
    settled = settle_held(principal, body.reports, digests)
    answers: list[dict[str, Any]] = []
    for place, report in enumerate(body.reports):
        try:
            if place not in settled:
                check_known(principal, report.name)
                work.settle(report.name, report.id, report, digests[place])
            answers.append({"name": report.name, "id": report.id, "status": 200})
        except (Problem, JobsError) as error:
            if isinstance(error, FOR_ALL):
                raise
            answers.append(refused(request, report.name, report.id, error))
    return JsonResponse({"reports": answers})


def settle_held(principal: Principal, reports: Sequence[schemas.BulkReport], digests: Sequence[str]) -> frozenset[int]:
    """End the attempts that are still held, with one call to the store per queue for those that succeeded, and another
    for those that failed.  Returns their places; every other report has to be looked at by itself."""
    by_queue: dict[str, dict[str, int]] = {}
    for place, report in enumerate(reports):
        if principal.knows(report.name) and report.name in known():
            queue = queue_of(report.name)
            if queue is not None:
                by_queue.setdefault(queue, {}).setdefault(report.id, place)
    settled = set[int]()
    for queue, places in by_queue.items():
        succeeded: list[tuple[Claim, Any]] = []
        failed: list[tuple[Claim, str, bool]] = []
        for info in get_store().get_many(queue, list(places)):
            place = places[info.id]
            report = reports[place]
            is_held = info.state is State.RUNNING and info.token == report.token
            if is_held and name_of(info.record) == report.name and report.attempt in (None, info.claim.attempt):
                held = info.claim._replace(report=digests[place])
                if report.status == "succeeded":
                    succeeded.append((held, report.result))
                else:
                    failed.append((held, report.error, report.retryable))
        lost = succeed_many(get_store(), queue, succeeded) | fail_many(get_store(), queue, failed)
        claims = [*(claim for claim, _ in succeeded), *(claim for claim, _, _ in failed)]
        settled.update(places[claim.id] for claim in claims if claim.id not in lost)
    return frozenset(settled)
