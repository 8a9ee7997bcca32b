"""Numbers over HTTP: statistics, the health of the store, and metrics for Prometheus."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router, Schema

from django_jobs import alarms, browse, metrics
from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Scope, require
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.conf import get_settings
from django_jobs.core.values import Claim, Done, State
from django_jobs.stores import get_store

router = Router(tags=["numbers"])
#: A claim that does not exist: the store must refuse to settle it, which proves that its scripts work.
NOBODYS = Claim("healthz", "", 0, b"")
TOTALS = ("enqueued", "succeeded", "failed", "retried", "dead")


class Alarm(Schema):
    """One thing that is wrong, and since when."""

    kind: str
    severity: Literal["critical", "warning", "notice"]
    #: None: not known.
    since: str | None
    queue: str | None
    text: str
    #: the text that a user gave, such as the reason of a pause.
    reason: str | None
    #: address of the page in the admin on which it can be dealt with.
    link: str | None


class Unchecked(Schema):
    """Something that could not be checked."""

    what: str
    text: str


class Alarms(Schema):
    """Everything that is wrong now, worst first."""

    well: bool
    checked_at: str
    alarms: list[Alarm]
    unchecked: list[Unchecked]


@router.get("/v1/stats", response=schemas.Stats, summary="Numbers")
def stats(request: HttpRequest) -> JsonResponse:
    """Get the numbers of all queues, read at one moment."""
    require(request, Scope.READ)
    queues = browse.queue_stats(browse.queue_names())
    return JsonResponse(
        {
            "states": {state: sum(queue.counts.get(state, 0) for queue in queues) for state in State},
            "queues": {
                queue.queue: {
                    **{state: queue.counts.get(state, 0) for state in State},
                    "latency": queue.latency / 1000,
                    "paused": queue.paused is not None,
                    "unarchived": queue.unarchived,
                }
                for queue in queues
            },
            "totals": {event: sum(queue.totals.get(event, 0) for queue in queues) for event in TOTALS},
            "workers": len(get_store().workers()),
        }
    )


@router.get("/v1/alarms", response=Alarms, summary="Alarms")
def list_alarms(request: HttpRequest) -> JsonResponse:
    """What is wrong now, worst first: the same list as on the overview of the admin and in `jobs alarms`.  `well` is
    true only if everything was checked and there is no alarm."""
    require(request, Scope.READ)
    return JsonResponse(alarms.check().as_json())


@router.get("/healthz", response=schemas.Health, auth=None, summary="Health")
def healthz(request: HttpRequest) -> JsonResponse:
    """200 if the store does what workers need: it has run a script that settles a claim.  503 if not.  Needs no token,
    and reports nothing else."""
    queue = next(iter(get_settings().queues))
    if get_store().complete(queue, [Done(NOBODYS._replace(queue=queue))]) != [NOBODYS.id]:
        raise Problem(Kind.STORE_AWAY, "The store accepted a claim that does not exist.")
    return JsonResponse({"status": "ok"})


@router.get("/metrics", summary="Metrics")
def prometheus(request: HttpRequest) -> HttpResponse:
    """Get the numbers in the text format of Prometheus (needs the extra `metrics`).  The scope `metrics` allows this
    call only."""
    require(request, Scope.READ, Scope.METRICS)
    return HttpResponse(metrics.text(), content_type=metrics.CONTENT_TYPE)
