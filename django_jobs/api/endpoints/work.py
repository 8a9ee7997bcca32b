"""For workers in any language: claim, extend, report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from math import inf
from time import monotonic, sleep
from typing import Any
from weakref import WeakKeyDictionary

from django.http import HttpRequest, JsonResponse
from ninja import Router

from django_jobs import browse
from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Scope, authenticate_again, require
from django_jobs.api.common.problems import Kind, Problem, refuses
from django_jobs.api.common.schemas import Name
from django_jobs.api.common.serializers import find, look, queue_of, shown
from django_jobs.api.endpoints import jobs
from django_jobs.api.endpoints.leases import (
    check_may_have,
    fetched_from,
    is_under_way,
    lease_of,
    lengthen,
    own_request,
    shortest,
    timeout_of,
)
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.outcome import clean, failed_attempt
from django_jobs.core.values import Claim, Claimed, Ended, JobInfo, Lane, State
from django_jobs.enqueueing.keys import refiled
from django_jobs.enqueueing.request import DIGEST_LENGTH
from django_jobs.events.announce import announce_expired
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import CorruptRecord, StoreError
from django_jobs.execution import replicas
from django_jobs.execution.remote_reports import fail, over, succeed
from django_jobs.remote import known, pull_queues
from django_jobs.remote.data import plain, stored_data
from django_jobs.serialization.holders import confirmed, is_remote, remote_holder
from django_jobs.serialization.payloads import meta_of
from django_jobs.serialization.record import decode
from django_jobs.stores import get_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.answers import LONGEST_WAIT

router = Router(tags=["work"])
#: A check-in message is cut after this many bytes.
MAX_MESSAGE = 1024
#: Seconds between two tries where jobs are due at once, and none can be claimed.
SHORTEST_PAUSE = 0.02
#: Seconds between two notes that a queue was asked for work.
ASKED_EVERY = 10.0
_noted: WeakKeyDictionary[Store, dict[str, float]] = WeakKeyDictionary()
#: Seconds for which one claim looks for its jobs among those of other workers; then it answers with what it found.
LONGEST_LOOK = 1.0


@router.post(
    "/v1/queues/{name}/claim",
    response=schemas.Claims,
    summary="Claim",
    openapi_extra=refuses(Kind.NOTHING_TO_FETCH),
)
def claim(request: HttpRequest, name: Name, body: schemas.ClaimRequest) -> JsonResponse:
    """Claim jobs to run.  You hold each job until you report its end, or until you send nothing for `lease` seconds.

    With a `request_id`, it is safe to send the call again: it returns the same jobs.  You hold these for ten seconds
    only, until you confirm each with extend: start the job if the answer is 200, and leave it otherwise.  A job that is
    not confirmed goes back to the queue, and its attempt is not counted."""
    principal = require(request, Scope.WORK)
    names = fetched_from(name, principal)
    note_asked(name)
    deadline = monotonic() + body.wait
    taken, due = take(name, names, own_request(principal, body))
    check_may_have(name, names, principal, is_empty=not taken and due == inf)
    while not taken and (left := deadline - monotonic()) > 0:
        pause = min(left, max(due, SHORTEST_PAUSE), LONGEST_WAIT)
        if name in pull_queues():
            # Wake-ups can be missed, so try again after a while even without one.
            get_store().wait_for_work([name], pause, lane=None)
        else:
            sleep(min(pause, LONGEST_WAIT / 2))  # the wake-ups of this queue are for Django's workers, too
        # Meanwhile the token may have been revoked or limited, and types removed, moved or given a URL.
        authenticate_again(request)
        principal = require(request, Scope.WORK)
        names = fetched_from(name, principal)
        taken, due = take(name, names, own_request(principal, body))
    return JsonResponse({"jobs": taken})


def note_asked(queue: str) -> None:
    """Leave in the store, every few seconds, that a remote worker asks this queue for work: see browse/why.py."""
    store, now = get_store(), monotonic()
    noted = _noted.setdefault(store, {})
    if now - noted.get(queue, -ASKED_EVERY) >= ASKED_EVERY:
        noted[queue] = now
        with suppress(StoreError):  # it decides nothing, and the claim that follows meets the same error
            store.update_document(browse.ASKED, {queue: store.now()})


def take(queue: str, names: Sequence[str], body: schemas.ClaimRequest) -> tuple[list[dict[str, Any]], float]:
    """Claim jobs of these names now, and describe them.

    Returns also the seconds until a job of the queue is due or a pause ends; infinite if neither will happen."""
    taken, due, began = list[dict[str, Any]](), inf, monotonic()
    for lane in (Lane.SHARED, Lane.ALONE):  # jobs delivered at most once wait in the lane "alone"
        rank = 0
        while len(taken) < body.limit and monotonic() - began < LONGEST_LOOK:
            claimed = _claim(queue, names, lane, rank, body, body.limit - len(taken))
            described = [job for each in claimed.claims if (job := describe(each, names, body)) is not None]
            lengthen(queue, claimed.claims, described, shortest(names, body))
            taken += described
            rank, due = claimed.rank, inf if claimed.next_due is None else claimed.next_due / 1000
            if taken and body.request_id:
                return taken, due  # the request is answered: the store gives it no other jobs
            if not rank and (described or not claimed.claims):
                break
    return taken, due


def _claim(queue: str, names: Sequence[str], lane: Lane, rank: int, body: schemas.ClaimRequest, limit: int) -> Claimed:
    claimed = get_store().claim(
        queue,
        remote_holder(body.worker, confirmed=not body.request_id),
        limit,
        lane=lane,
        lease=round(shortest(names, body) * 1000),
        max_running=get_settings().queues[queue].max_concurrency,
        lease_each=True,
        knows=registry.digest(),  # a worker may have parked jobs of a type that it did not know yet
        limits=registry.limits(),
        names=names,
        rank=rank,
        request=body.request_id or "",
    )
    announce_expired(queue, claimed.expired, claimed.now, deliver_here)
    return claimed


def describe(claim: Claim, names: Sequence[str], body: schemas.ClaimRequest) -> dict[str, Any] | None:
    """Return the job as the worker gets it; None if its record cannot be read (users see that) or it may not start."""
    store = get_store()
    try:
        job = decode(claim.id, claim.queue, claim.record)
        data = stored_data(job.args)
    except (CorruptRecord, ValueError, TypeError) as error:
        if not is_under_way(claim, body):
            log = failed_attempt(error, number=claim.attempt, at=store.now(), outcome="corrupt")
            store.bury(claim, log._replace(traceback=""))
        return None
    if job.name not in names:  # the first call with this id has claimed it; since then, the caller was limited
        return None
    definition = registry.find(job.name)  # None: the type was removed at this moment
    record = refiled(definition, job) if definition is not None else None
    if record is not None and not is_under_way(claim, body):
        store.settle(claim.queue, [Ended(claim, "refile", record=record)])
        return None
    if job.controls.at_most_once and not replicas.may_start(store, claim) and not is_under_way(claim, body):
        store.snooze(claim, replicas.AGAIN, begun=False)
        return None
    described = {"id": claim.id, "name": job.name, "data": data, "attempt": claim.attempt}
    return {
        **described,
        "token": claim.token,
        "lease": lease_of(job.name, body),
        "meta": plain(meta_of(job)),
        "tags": list(job.tags),
    }


@router.post(
    "/v1/jobs/{name}/{id}/extend",
    response=schemas.Extended,
    summary="Extend",
    openapi_extra=refuses(Kind.ATTEMPT_OVER, Kind.NOT_REMOTE),
)
def extend(request: HttpRequest, name: Name, id: Name, body: schemas.Extension) -> JsonResponse:
    """Extend the claim of a job that you are still running, and report its progress.  `stop` is true if a user has
    asked the job to stop."""
    require(request, Scope.WORK, job=name)
    return JsonResponse(prolong(name, id, body))


def prolong(name: str, id: str, body: schemas.Extension) -> dict[str, Any]:
    """Extend one claim, and note the progress.  Returns the answer.  Raises Problem."""
    held = held_claim(id, name, token=body.token)
    assert held is not None
    store, seconds = get_store(), timeout_of(name) if body.lease is None else body.lease
    lease = round(seconds * 1000)
    holder = confirmed(held.worker, id)
    # The holder stays the same once it is confirmed; transfer is used because, unlike extend, it checks the token.
    if not store.transfer(held, holder, lease):
        raise stale(id)
    if body.message is not None or body.progress is not None:
        checkin: dict[str, Any] = {"message": clean(body.message or "", MAX_MESSAGE), "at": store.now()}
        if body.progress is not None:
            checkin["progress"] = body.progress
        if not store.checkin(held, json.dumps(checkin).encode()):
            raise stale(id)
    asked = store.extend(held.queue, [holder], lease).get(holder, ())
    return {"lease": seconds, "stop": id in asked}


# Uses the router of the other methods of this URL: one URL needs one router.
@jobs.router.post(
    "/v1/jobs/{name}/{id}",
    response=schemas.Job,
    summary="Report",
    tags=["work"],
    openapi_extra=refuses(Kind.ATTEMPT_OVER, Kind.NOT_REMOTE),
)
def report(request: HttpRequest, name: Name, id: Name, body: schemas.Report) -> JsonResponse:
    """Report how an attempt ended.  `attempt` or `token` names the attempt.  409 if it is over; the report then
    changes nothing.  If you repeat the report that ended the last attempt, unchanged and within a quarter of an hour,
    the answer is 200."""
    principal = require(request, Scope.WORK, job=name)
    if body.attempt is None and body.token is None:
        raise Problem(Kind.INVALID, "Name the attempt: send attempt, token, or both.")
    held = settle(name, id, body, digest_of(body))
    found = look(id, name=name)
    if found is None and body.status == "succeeded":  # it has left the history already
        queue = held.queue if held is not None else queue_of(name)
        return JsonResponse({"id": id, "name": name, "queue": queue, "state": State.SUCCEEDED, "archived": False})
    info, archived = found or find(id, name=name)
    return JsonResponse(shown(info, principal, archived=archived))


def digest_of(report: schemas.Report) -> str:
    """Return a digest that is equal only for equal reports about a job, whichever call sends them."""
    body = report.dict(include=set(schemas.Report.model_fields))
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def settle(name: str, id: str, report: schemas.Report, digest: str) -> Claim | None:
    """End the attempt that the report names.  Returns its claim; None if the same report has ended it before.

    Raises Problem 404 or 409."""
    held = held_claim(id, name, token=report.token, attempt=report.attempt, digest=digest)
    if held is not None:
        store, held = get_store(), held._replace(report=digest)
        if report.status == "succeeded":
            done = succeed(store, held, report.result)
        else:
            done = fail(store, held, report.error, retryable=report.retryable)
        if not done and store.reported([held.queue], id) != digest:  # the same report may have come at the same moment
            raise stale(id)
    return held


def held_claim(
    id: str, name: str, *, token: int | None = None, attempt: int | None = None, digest: str = ""
) -> Claim | None:
    """Return the claim of a running remote job; None if the report with that digest has ended the attempt before.

    Raises Problem 404; 409 if the caller means another claim."""
    found = look(id, name=name)
    if found is None:
        # Its type may have been moved to another queue since.
        if digest and get_store().reported(browse.queue_names(), id) == digest:
            return None
        if digest and token is not None and (queue := queue_of(name)) is not None:
            over(get_store(), queue, id, token)  # it was killed, and deleted
        find(id, name=name)
        raise stale(id)  # it is there now
    info, archived = found
    if name not in known() and not is_remote(info.worker):
        raise Problem(
            Kind.NOT_REMOTE, f"{name!r} is not a remote job type: the workers of the project settle its jobs."
        )
    named = (token is None or token == info.token) and (attempt is None or attempt == info.claim.attempt)
    if archived or info.state is not State.RUNNING or not named:
        if digest and get_store().reported([info.queue], id) == digest:
            return None
        if digest and not archived and is_last_of(info, attempt):
            over(get_store(), info.queue, id, token)  # it may have been killed: its worker has ended it now
        raise stale(id)
    return info.claim


def is_last_of(info: JobInfo, attempt: int | None) -> bool:
    """Return whether the last attempt that has ended for the store has this number, or none is named."""
    return attempt is None or bool(info.attempts and info.attempts[-1].attempt == attempt)


def stale(id: str) -> Problem:
    """Return the answer for a claim that is no longer held."""
    return Problem(
        Kind.ATTEMPT_OVER,
        f"That attempt of job {id!r} is over: it was settled, cancelled, or taken over. Nothing was changed.",
    )
