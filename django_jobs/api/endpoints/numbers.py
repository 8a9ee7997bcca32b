"""Numbers over HTTP: statistics, the health of the store, and metrics for Prometheus."""

from __future__ import annotations

from typing import Annotated, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Query, Router, Schema

from django_jobs import browse, metrics
from django_jobs.api.common import schemas
from django_jobs.api.common.principal import Scope, require, require_all_jobs
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.api.common.schemas import Name
from django_jobs.browse import trends
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.conf import get_settings
from django_jobs.core.values import Claim, Completed, State
from django_jobs.formatting import counted
from django_jobs.operations import diagnosis, error_inbox
from django_jobs.stores import get_store

router = Router(tags=["numbers"])
#: A claim that does not exist: the store must refuse to settle it, which proves that its scripts work.
NOBODYS = Claim("healthz", "", 0, b"")


class Error(Schema):
    """An error of failed attempts: its class, and the last place of the project's own code in the traceback."""

    #: the filter `error` of lists in the admin, too.
    id: str
    type: str
    #: "": it came from none of the project's code.
    frame: str
    #: attempts that failed so.
    count: int
    first_seen: str
    last_seen: str
    #: one that was resolved, and was seen in a newer release since then, is new again.
    state: Literal["new", "resolved", "ignored"]
    first_release: str | None
    last_release: str | None
    came_back: bool
    note: str
    #: who decided about it, or wrote the note.
    by: str | None
    #: attempts by day (UTC), by job type and by queue.
    days: dict[str, int]
    types: dict[str, int]
    queues: dict[str, int]


class Alarm(Schema):
    """A finding under its older name."""

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


class TagCount(Schema):
    """How many failed jobs have a tag."""

    tag: str
    jobs: int
    #: there may be more of them, in queues that have too many tags.
    or_more: bool
    #: when the first and the latest of them failed; perhaps of those, too, that have left.
    first_at: str | None
    last_at: str | None


class TagCounts(Schema):
    """The tags of the jobs of a state, the most frequent first."""

    state: Literal["dead", "retry"]
    tags: list[TagCount]
    #: tags that are left out, because of `limit`.
    more_tags: int
    #: jobs with tags that their queue does not count, because it has too many.
    uncounted_jobs: int


Period = Literal["hour", "day", "week"]


class Stretch(Schema):
    """What happened in one stretch of time; the numbers are null if they are not known."""

    start: str
    end: str
    succeeded: int | None
    failed: int | None
    dead: int | None
    #: there may have been more: a part of it is not known.
    partial: bool


class Trend(Schema):
    """Stretches of time, oldest first, without gaps."""

    period: Period
    #: length of a stretch; one in which no sample was taken has the sum of several.
    seconds: int
    stretches: list[Stretch]


@router.get("/v1/queues/{name}/trend", response=Trend, summary="Trend of a queue")
def queue_trend(request: HttpRequest, name: Name, period: Period = "day") -> JsonResponse:
    """Get how many jobs succeeded, attempts failed and jobs died: an hour by five minutes, a day or a week by hours.
    The last stretch is not over.  What workers did not count is null, or has one sum for all of its time."""
    require_all_jobs(request, Scope.READ)
    known_queue(name)
    return JsonResponse(trends.trend_payload(trends.queue_trends([name], period)[name]))


@router.get("/v1/trend", response=Trend, summary="Trend of all queues")
def total_trend(request: HttpRequest, period: Period = "day") -> JsonResponse:
    """The same of all queues together.  With more than 100 queues, use that of each queue."""
    require_all_jobs(request, Scope.READ)
    trend = trends.total_trend(browse.queue_names(), period)
    if trend is None:
        many = counted(trends.MOST_QUEUES, "queue")
        raise Problem(Kind.INVALID, f"There are more than {many}. Ask for the trend of each queue.")
    return JsonResponse(trends.trend_payload(trend))


@router.get("/v1/job-types/{name}/trend", response=Trend, summary="Trend of a job type")
def type_trend(request: HttpRequest, name: Name, period: Period = "day", queue: str = "") -> JsonResponse:
    """The same of one job type, in one queue or in all.  With more than 20 queues, `queue` is needed."""
    require(request, Scope.READ, job=name)
    return JsonResponse(trends.trend_payload(trends.type_trend(few_queues(queue), name, period)))


def few_queues(queue: str) -> list[str]:
    """Return this queue, or all if it is "".  Raises Problem 404 if there is no such queue, and 422 if all are many."""
    queues = browse.queue_names()
    if queue:
        known_queue(queue)
        return [queue]
    if len(queues) > LIVE_QUEUES:
        raise Problem(Kind.INVALID, f"There are more than {LIVE_QUEUES} queues. Name one of them in `queue`.")
    return queues


def known_queue(name: str) -> None:
    """Raise Problem 404 unless there is a queue of that name."""
    if name not in browse.queue_names():
        raise Problem(Kind.NO_QUEUE, f"There is no queue {name!r}.")


@router.get("/v1/stats", response=schemas.Stats, summary="Numbers")
def stats(request: HttpRequest) -> JsonResponse:
    """Get the numbers of all queues, read at one moment."""
    require_all_jobs(request, Scope.READ)
    found = browse.queue_stats(browse.queue_names())
    return JsonResponse(browse.stats_payload(found, len(get_store().workers())))


@router.get("/v1/tags", response=TagCounts, summary="Tags of failed jobs")
def tag_counts(
    request: HttpRequest,
    state: Literal["dead", "retry"] = "dead",
    queue: Annotated[str, Query(max_length=255, description="Only jobs of this queue.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JsonResponse:
    """Count the jobs that are dead, or wait for a retry, by tag, from the store's index: no job is read.  The jobs of a
    tag are at `v1/jobs?state=…&tag=…`.  Not for tokens that are limited to some job types: tags may be of others."""
    require_all_jobs(request, Scope.READ)
    if queue:
        known_queue(queue)
    return JsonResponse(browse.tag_payload(State(state), [queue] if queue else browse.queue_names(), limit))


@router.get("/v1/findings", response=list[schemas.Finding], summary="Findings")
def list_findings(request: HttpRequest) -> JsonResponse:
    """What is wrong now, worst first: the errors and warnings of the overview of the admin and of `jobs findings`, and
    what could not be checked.  The list is empty only if everything was checked."""
    require_all_jobs(request, Scope.READ)
    return JsonResponse(diagnosis.check().as_json(), safe=False)


@router.get("/v1/errors", response=list[Error], summary="Errors")
def list_errors(request: HttpRequest) -> JsonResponse:
    """The errors of failed attempts, those seen last first, also of jobs that are gone; without their messages.  Each
    queue remembers its latest 500."""
    require_all_jobs(request, Scope.READ)
    return JsonResponse([each.as_json() for each in error_inbox.inbox(arguments=False).errors], safe=False)


@router.get("/v1/alarms", response=Alarms, summary="Alarms")
def list_alarms(request: HttpRequest) -> JsonResponse:
    """The findings under their older names, with notices.  Use `v1/findings`: this goes in the next release."""
    require_all_jobs(request, Scope.READ)
    return JsonResponse(diagnosis.check().as_alarms())


@router.get("/healthz", response=schemas.Health, auth=None, summary="Health")
def healthz(request: HttpRequest) -> JsonResponse:
    """200 if the store does what workers need: it has run a script that settles a claim.  503 if not.  Needs no token,
    and reports nothing else."""
    queue = next(iter(get_settings().queues), "default")
    if get_store().complete(queue, [Completed(NOBODYS._replace(queue=queue))]) != [NOBODYS.id]:
        raise Problem(Kind.STORE_AWAY, "The store accepted a claim that does not exist.")
    return JsonResponse({"status": "ok"})


@router.get("/metrics", summary="Metrics")
def prometheus(request: HttpRequest) -> HttpResponse:
    """Get the numbers in the text format of Prometheus (needs the extra `metrics`).  The scope `metrics` allows this
    call only."""
    require_all_jobs(request, Scope.READ, Scope.METRICS)
    return HttpResponse(metrics.text(), content_type=metrics.CONTENT_TYPE)
