"""For how long a claim of a remote worker is valid: what the worker asks for, or the time-out of the job type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_jobs.api.common import schemas
from django_jobs.core.values import Claim
from django_jobs.remote import known
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
