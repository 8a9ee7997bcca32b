"""Queues over HTTP: list, pause, resume."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from ninja import Router

from django_jobs import browse, operations
from django_jobs.api.common import schemas
from django_jobs.api.common.audit import log
from django_jobs.api.common.principal import Principal, Scope, require, require_all_jobs
from django_jobs.api.common.schemas import Name
from django_jobs.conf import QueueSettings, get_settings
from django_jobs.core.outcome import clean
from django_jobs.core.values import QueueStats
from django_jobs.enqueueing.call_options import moment
from django_jobs.models.audit import ObjectKind, pause_details
from django_jobs.paused import pauses, payload
from django_jobs.serialization.payloads import iso

router = Router(tags=["queues"])


@router.get("/v1/queues", response=list[schemas.Queue], summary="List")
def list_queues(request: HttpRequest) -> JsonResponse:
    """List all queues: counts, latency, pause and limits."""
    principal = require_all_jobs(request, Scope.READ)
    return JsonResponse([described(stats, principal) for stats in browse.queue_stats(browse.queue_names())], safe=False)


@router.get("/v1/paused", response=list[schemas.Paused], summary="What is paused")
def list_paused(request: HttpRequest) -> JsonResponse:
    """List the paused queues, job types and schedules: by whom, since when, until when, why, and what waits."""
    require_all_jobs(request, Scope.READ)
    return JsonResponse([payload(each) for each in pauses()], safe=False)


@router.post("/v1/queues/{name}/pause", response=schemas.Queue, summary="Pause")
def pause_queue(request: HttpRequest, name: Name, body: schemas.PauseRequest) -> JsonResponse:
    """Start no more jobs of this queue, or of one job type in it.  Running jobs finish.  `{}` pauses the whole queue,
    which a token that is limited to some job types may not do."""
    principal = allowed(request, body.job)
    until = 0 if body.until is None else moment(body.until, "until")
    reason = clean(body.reason, 500)
    if operations.pause(name, name=body.job, reason=reason, until=until, by=f"{principal.name} (HTTP)"):
        log(request, "pause", ObjectKind.QUEUE, name, job_type=body.job, reason=reason, until=until)
    return JsonResponse(described(browse.queue_stats([name])[0], principal))


@router.post("/v1/queues/{name}/resume", response=schemas.Queue, summary="Resume")
def resume_queue(request: HttpRequest, name: Name, body: schemas.ResumeRequest) -> JsonResponse:
    """Start jobs of this queue, or of the job type in it, again.  `{}` resumes the whole queue, as for pause."""
    principal = allowed(request, body.job)
    if (paused := operations.resume(name, name=body.job)) is not None:
        log(request, "resume", ObjectKind.QUEUE, name, job_type=body.job, paused=pause_details(paused))
    return JsonResponse(described(browse.queue_stats([name])[0], principal))


def allowed(request: HttpRequest, job: str | None) -> Principal:
    """Return the caller if it may pause and resume this job type; None: the whole queue.  Raises Problem 403."""
    return require_all_jobs(request, Scope.MANAGE) if job is None else require(request, Scope.MANAGE, job=job)


def described(stats: QueueStats, principal: Principal) -> dict[str, Any]:
    """Return one queue as shown.  Numbers of all jobs are not for a caller that is limited to some job types."""
    limits = get_settings().queues.get(stats.queue) or QueueSettings(stats.queue)
    return {
        "name": stats.queue,
        "counts": {} if principal.jobs else stats.counts,
        "latency": None if principal.jobs else stats.latency / 1000,
        "paused": stats.paused is not None,
        "reason": stats.paused.reason if stats.paused else None,
        "until": iso(stats.paused.until) if stats.paused else None,
        "paused_jobs": sorted(filter(principal.knows, stats.paused_types)),
        "max_concurrency": limits.max_concurrency,
        "max_length": limits.max_length,
    }
