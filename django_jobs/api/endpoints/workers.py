"""The workers over HTTP: who runs, what they do, and what is wrong with them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from ninja import Router, Schema

from django_jobs.api.common.principal import Principal, Scope, require, require_all_jobs
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.api.endpoints.numbers import Period, Trend
from django_jobs.browse import trends
from django_jobs.core.values import WorkerInfo
from django_jobs.operations.diagnosis import problems_of
from django_jobs.remote import pull_queues
from django_jobs.samples.worker import totals_of
from django_jobs.serialization.checked import list_of, running_in
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store

router = Router(tags=["numbers"])


class Running(Schema):
    """A job that a worker runs."""

    id: str
    name: str
    queue: str
    started_at: str | None


class Ended(Schema):
    """How many attempts that a worker ran ended in each way, since it started."""

    succeeded: int
    #: attempts.
    failed: int
    #: jobs.
    dead: int
    retried: int
    snoozed: int
    cancelled: int


class Worker(Schema):
    """One `runworkers`."""

    name: str
    host: str
    pid: int
    state: str
    version: str
    #: of the project's code; "": it has none, or the worker is of an older version.
    release: str
    started_at: str | None
    seen_at: str | None
    queues: list[str]
    processes: int
    threads: int
    #: what is wrong with it, as `jobs health` says; empty = healthy.
    problems: list[str]
    #: those of the jobs that it runs which the caller may see.
    jobs: list[Running]
    #: null: not known, as it is of a worker of an older version; or the token is limited to some job types.
    totals: Ended | None


@router.get("/v1/workers", response=list[Worker], summary="Workers")
def list_workers(request: HttpRequest) -> JsonResponse:
    """List the running workers: what each does, and whether it is healthy."""
    principal = require(request, Scope.READ)
    store = get_store()
    workers = store.workers()
    served = sorted({queue for worker in workers for queue in map(str, list_of(worker.info.get("queues")))})
    # How long the jobs of a queue wait is a number of all jobs.
    stats, now, foreign = [] if principal.jobs else store.stats(served), store.now(), pull_queues()
    shown = [
        described(worker, principal) | {"problems": problems_of(worker, stats, now, foreign)} for worker in workers
    ]
    return JsonResponse(shown, safe=False)


@router.get("/v1/workers/{name}/trend", response=Trend, summary="Trend of a worker")
def worker_trend(request: HttpRequest, name: str, period: Period = "hour") -> JsonResponse:
    """Get how many jobs succeeded, attempts failed and jobs died in one worker, as for a queue.  Before it started,
    there were none.  The times are those of the clock of its machine."""
    require_all_jobs(request, Scope.READ)
    worker = next((each for each in get_store().workers() if each.name == name), None)
    if worker is None:
        raise Problem(Kind.NO_WORKER, f"There is no worker {name!r:.110}.")
    return JsonResponse(trends.trend_payload(trends.worker_trend(worker, period)))


def described(worker: WorkerInfo, principal: Principal) -> dict[str, Any]:
    """Return one worker as shown.  What a worker publishes may come from another version: every field is checked."""
    info = worker.info
    jobs = [job for job in list_of(running_in(info), dict) if principal.knows(str(job.get("name", "")))]
    return {
        "name": worker.name,
        **{key: str(info.get(key, "")) for key in ("host", "state", "version", "release")},
        **{key: _whole(info.get(key)) for key in ("pid", "processes", "threads")},
        "started_at": iso(_whole(info.get("started_at"))),
        "seen_at": iso(worker.seen_at),
        "queues": list(map(str, list_of(info.get("queues")))),
        "jobs": [
            {
                **{key: str(job.get(key, "")) for key in ("id", "name", "queue")},
                "started_at": iso(_whole(job.get("since"))),
            }
            for job in jobs
        ],
        "totals": None if principal.jobs else totals_of(info),
    }


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
