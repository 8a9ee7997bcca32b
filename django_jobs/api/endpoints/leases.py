"""What a claim of a remote worker may get, and for how long that is valid: what the worker asks for, or the time-out of
the job type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Principal
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.conf import get_settings
from django_jobs.core.values import Claim, State
from django_jobs.enqueueing.request import DIGEST_LENGTH
from django_jobs.exceptions import UnknownQueue
from django_jobs.remote import known
from django_jobs.serialization.arguments import canonical
from django_jobs.serialization.holders import is_unconfirmed
from django_jobs.stores import get_store

#: Seconds that an attempt of a type without a row may send nothing: the type was removed while the job ran.
NO_TIMEOUT = 300.0
#: Seconds within which a worker confirms a claim that it made with a request id.
CONFIRM_WITHIN = 10.0


def lease_of(name: str, body: schemas.ClaimRequest) -> float:
    """Return for how long (s) a claim of a job of this type is valid at first."""
    lease = timeout_of(name) if body.lease is None else body.lease
    return min(lease, CONFIRM_WITHIN) if body.request_id else lease


def timeout_of(name: str) -> float:
    """Return for how long (s) an attempt of this type may send nothing, unless its worker asks for another lease."""
    kind = known().get(name)
    return kind.timeout if kind is not None else NO_TIMEOUT


def shortest(names: Sequence[str], body: schemas.ClaimRequest) -> float:
    """Return the lease (s) with which jobs of several types are claimed in one call."""
    return min(lease_of(name, body) for name in names)


def lengthen(queue: str, claims: Sequence[Claim], described: Sequence[Mapping[str, Any]], least: float) -> None:
    """Give the jobs whose lease (s) is longer than the one they were claimed with their own."""
    holders = {claim.id: claim.worker for claim in claims}
    for lease in {job["lease"] for job in described if job["lease"] > least}:
        get_store().extend(
            queue, [holders[job["id"]] for job in described if job["lease"] == lease], round(lease * 1000)
        )


def fetched_from(queue: str, principal: Principal) -> list[str]:
    """Return the job types that the caller may fetch, whatever queue they have now: a type that was moved may have left
    jobs here.  Raises UnknownQueue, or Problem if there is none."""
    if queue not in get_settings().queues:
        raise UnknownQueue(f"Queue {queue!r} is not in DJANGO_JOBS['QUEUES'].")
    names = sorted(kind.name for kind in known().values() if not kind.url and principal.knows(kind.name))
    if not names:
        check_may_have(queue, names, principal, is_empty=True)
    return names


def check_may_have(queue: str, names: Sequence[str], principal: Principal, *, is_empty: bool) -> None:
    """Raise Problem if no type of these names has this queue, and no job of them is here or will be due here."""
    here = {kind.name for kind in known().values() if kind.queue == queue and not kind.url}
    if not is_empty or not here.isdisjoint(names):
        return
    if here:
        raise Problem(Kind.JOB_NOT_ALLOWED, f"{principal.name!r} may use no job type of queue {queue!r}.")
    raise Problem(
        Kind.NOTHING_TO_FETCH,
        f"Queue {queue!r} has no jobs to claim over HTTP. Create a remote job type there, without a URL.",
    )


def own_request(principal: Principal, body: schemas.ClaimRequest) -> schemas.ClaimRequest:
    """Return the request with an id that belongs to the caller: with an id that another token has used, a claim would
    get the jobs of that token."""
    if body.request_id is None:
        return body
    id = sha256(canonical([principal.name, body.request_id], "request_id")).hexdigest()[:DIGEST_LENGTH]
    return body.model_copy(update={"request_id": id})


def is_under_way(claim: Claim, body: schemas.ClaimRequest) -> bool:
    """Return whether this call came late: its worker has confirmed the job, which an earlier answer gave it, and may be
    running it.  Then the job must not be taken from it, whatever has changed since."""
    if body.request_id is None:
        return False
    info = get_store().get(claim.queue, claim.id)
    return info is not None and info.state is State.RUNNING and not is_unconfirmed(info.worker)
