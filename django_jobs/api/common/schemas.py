"""The bodies of requests and answers, as the OpenAPI document describes them.

Long because all endpoints share these names, and a client looks up in one place what a field means.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Path, Schema
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, Strict

from django_jobs.api.common.problems import Kind
from django_jobs.core.options.checks import MOST_TAGS, TAG, check_tags
from django_jobs.remote.models import NAME_PATTERN

#: The same pattern for Rust's regular expressions, which have no \Z.
PATTERN = NAME_PATTERN.replace(r"\Z", "$")

Name = Annotated[str, Path(pattern=PATTERN, description="Letters, digits and _ . : -")]
MAX_TOKEN = 2**53 - 1
#: Items in one call: as many as one call to the store takes.
MOST_IN_BULK = 1000
#: Claims that one call extends: as many as one claim returns.  Each takes some calls to the store.
MOST_EXTENDED = 100
#: What the parameter says that takes a query.
QUERY = (
    "Only jobs that match all terms of this query: `name: queue: state: error: tag: scope: id: worker: release: "
    'before: after: arg.NAME=JSON`, and text. An argument has a JSON value: `arg.customer_id=42`, `arg.status="open"`.'
)
TYPES: list[Any] = [kind.type for kind in Kind]


def _whole(value: object) -> object:
    # JSON has only one type of number: a serializer may write 5 as 5.0.
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Words to find and count jobs by.
Tag = Annotated[str, Strict(), Field(pattern=f"^{TAG}$", description="Letters, digits and _ . : / @ + = -")]
Tags = Annotated[list[Tag], Field(max_length=MOST_TAGS), BeforeValidator(lambda value: list(check_tags(value)))]
#: JSON has its own types: true is not 1, and "5" is not a number.
Whole = Annotated[int, Strict(), BeforeValidator(_whole)]
#: If null is allowed too, the limits must be here to appear in the document.
Priority = Annotated[int, Strict(), Field(ge=-100, le=100), BeforeValidator(_whole)]
PerMinute = Annotated[int, Strict(), Field(ge=1, le=1_000_000), BeforeValidator(_whole)]
#: The number of an attempt, or the token of a claim.
Serial = Annotated[int, Strict(), Field(ge=1, le=MAX_TOKEN), BeforeValidator(_whole)]
Number = Annotated[float, Strict()]
Truth = Annotated[bool, Strict()]


def _text(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ValueError("Use RFC 3339 text with an offset.")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_text)]


class Body(Schema):
    """What clients send.  Unknown fields are refused, so that a misspelt option is reported."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Body):
    """No fields: a body that says more is refused, because it would have no effect."""


class NewJob(Body):
    """A job to be enqueued."""

    data: Any = Field(
        None,
        description="Any JSON. For a job written in Python, an object is its keyword arguments, a list is its "
        "positional arguments, null is no argument, and any other value is its only argument. A remote job gets the "
        "value as it is.",
    )
    run_after: Moment | None = Field(None, description="The job does not start before this time; null = now.")
    expires_at: Moment | None = Field(None, description="If the job has not started by this time, it expires.")
    priority: Priority | None = Field(None, description="Higher priorities run first within a queue.")
    unique_key: Any = Field(None, description="Any JSON. 409 while a job of the same type and key is waiting.")
    tags: Tags = Field(
        default_factory=list, description="Words to find and count jobs by, added to those of the job type; 8 in all."
    )


class PutJob(NewJob):
    """A job to be enqueued under the id in the address."""

    id: str | None = Field(None, pattern=PATTERN, description="May repeat the id in the address.")


class BulkJob(NewJob):
    """One of many jobs to be enqueued."""

    name: str = Field(pattern=PATTERN, description="The job type.")
    id: str | None = Field(None, pattern=PATTERN, description="An id of yours; needed without an Idempotency-Key.")


class BulkJobs(Body):
    """Jobs to be enqueued, of any types."""

    jobs: list[BulkJob] = Field(min_length=1, max_length=MOST_IN_BULK)


class NewArguments(Body):
    """Other arguments for a waiting job."""

    data: Any = Field(description="As in the PUT that enqueued the job. A masked value stays unchanged.")


class ReplayRequest(Body):
    """The id of the new job, and whether the work may be done twice."""

    id: str | None = Field(None, pattern=PATTERN, description="An id of yours; null = one of ours.")
    start_again: Truth = Field(False, description="true: also if the job is delivered at most once and has begun.")


class RetryRequest(Body):
    """Which end of the job is meant, and whether the job may be started twice."""

    finished_at: Moment | None = Field(
        None, description="As the job shows it. If the job has ended again since then: 409, and nothing is changed."
    )
    start_again: Truth = Field(
        False, description="true: start a job again that is delivered at most once; needs finished_at."
    )


class KillRequest(Body):
    """The reason for the kill."""

    reason: str = Field("", max_length=500)


class Report(Body):
    """The end of an attempt."""

    status: Literal["succeeded", "failed"]
    attempt: Serial | None = None
    token: Serial | None = None
    retryable: Truth = Field(True, description="false: another attempt would fail too, so the job is dead.")
    result: Any = None
    error: str = Field("", max_length=65_536)


class BulkReport(Report):
    """The end of one of many attempts."""

    name: str = Field(pattern=PATTERN, description="The job type.")
    id: str = Field(pattern=PATTERN, description="The id of the job.")
    token: Serial = Field(description="The token of the claim.")


class BulkReports(Body):
    """The ends of attempts of jobs of any types."""

    reports: list[BulkReport] = Field(min_length=1, max_length=MOST_IN_BULK)


class ClaimRequest(Body):
    """A request for jobs to run."""

    limit: Whole = Field(1, ge=1, le=100)
    lease: Number | None = Field(
        None,
        ge=1,
        le=86_400,
        description="Seconds after which an attempt without extend or report has failed; null = the type's timeout.",
    )
    request_id: str | None = Field(
        None, pattern=PATTERN, description="An id of yours for this call; new jobs need a new one."
    )
    wait: Number = Field(0, ge=0, le=20, description="Seconds to wait for jobs if there are none.")
    worker: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="What you call yourself: users see who runs a job."
    )


class Extension(Body):
    """An extension of a claim, with optional progress."""

    token: Serial
    lease: Number | None = Field(
        None, ge=1, le=86_400, description="Seconds from now; null = the timeout of the job type."
    )
    message: str | None = Field(None, max_length=4096)
    progress: Number | None = Field(None, ge=0, le=1)


class BulkExtension(Extension):
    """An extension of one of many claims."""

    name: str = Field(pattern=PATTERN, description="The job type.")
    id: str = Field(pattern=PATTERN, description="The id of the job.")


class BulkExtensions(Body):
    """Extensions of claims of jobs of any types."""

    extensions: list[BulkExtension] = Field(min_length=1, max_length=MOST_EXTENDED)


class PauseRequest(Body):
    """Why and until when a queue, or one job type in it, is paused."""

    reason: str = Field("", max_length=500)
    until: Moment | None = Field(None, description="The pause ends at this time; null = until it is resumed.")
    job: str | None = Field(None, pattern=PATTERN, description="Only this job type.")


class ResumeRequest(Body):
    """What to resume."""

    job: str | None = Field(None, pattern=PATTERN, description="Only this job type.")


class NewType(Body):
    """A remote job type."""

    name: str = Field(pattern=PATTERN)
    queue: str = Field("default", pattern=PATTERN)
    delivery_strategy: Literal["at_least_once", "at_most_once"] = "at_least_once"
    attempts: Whole = Field(10, ge=1, le=1000)
    concurrency: Whole = Field(0, ge=0, le=1_000_000)
    timeout: Whole = Field(
        300, ge=1, le=86_400, description="Seconds after which an attempt without a report has failed."
    )
    url: str = Field("", max_length=2000, description="The URL to which jobs are posted; empty if workers claim them.")
    per_minute: PerMinute | None = Field(None, description="The most posts in a minute; null = no limit.")


class TypeChanges(Body):
    """The fields of a remote job type that change; the others stay."""

    # `default_factory` keeps null out of the document: a field that is sent has a value.
    queue: str = Field(default_factory=str, pattern=PATTERN, description="Jobs that wait in the old queue stay there.")
    delivery_strategy: Literal["at_least_once", "at_most_once"] = Field(default_factory=lambda: "at_least_once")
    attempts: Whole = Field(default_factory=int, ge=1, le=1000)
    concurrency: Whole = Field(default_factory=int, ge=0, le=1_000_000)
    timeout: Whole = Field(default_factory=int, ge=1, le=86_400, description="Seconds.")
    url: str = Field(
        default_factory=str, max_length=2000, description="As when it was created; empty if workers claim its jobs."
    )
    per_minute: PerMinute | None = Field(None, description="The most posts in a minute; null = no limit.")


class RemovedType(Schema):
    """There is no such job type any more."""

    name: str
    deleted: bool


class Quantiles(Schema):
    """Bounds in seconds that half, 95 % and all of the attempts stayed within; null = longer than two hours."""

    p50: float | None
    p95: float | None
    max: float | None


class RunTimes(Schema):
    """How long attempts of one job type waited and ran in one queue, whether they succeeded or failed."""

    name: str
    queue: str
    attempts: int
    waiting: Quantiles | None
    running: Quantiles | None
    since: str | None = Field(description="Attempts that ended since then; null = since the store began.")


class Periods(Schema):
    """Run times of the last day and of the last week, by queue."""

    day: list[RunTimes]
    week: list[RunTimes]


class JobType(Schema):
    """A job type."""

    name: str
    queue: str
    delivery_strategy: str
    attempts: int
    concurrency: int
    timeout: float | None
    way: Literal["posted", "fetched", "django"] = Field(description="How its jobs reach their workers.")
    url: str | None = Field(None, description="Where they are posted; absent without the scope read or manage.")
    per_minute: int | None = Field(None, description="The most posts in a minute; null = no limit.")
    remote: bool
    run_times: Periods | None = Field(None, description="Only with `times`.")


class Job(Schema):
    """One job.  Callers with only the scope `enqueue` see neither arguments nor results nor errors."""

    model_config = ConfigDict(extra="allow")

    id: str
    name: str
    queue: str
    state: str
    archived: bool
    attempts: int | None = None
    priority: int | None = None
    tags: list[str] = Field(default_factory=list, description="Words to find and count jobs by.")
    enqueued_at: str | None = None
    ready_at: str | None = None
    run_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    expires_at: str | None = None
    data: Any = None
    result: Any = None
    error: str | None = None


class JobPage(Schema):
    """A page of jobs.  `cursor` requests the next one; null = this is the last."""

    jobs: list[Job]
    cursor: str | None
    checked: int | None = Field(None, description="With `query`: the number of jobs that were checked for this page.")
    notes: list[str] = Field(default_factory=list, description="With `query`: what it could not find, and why.")


class Paused(Schema):
    """A pause.  `queue` is null for a schedule; `until` is null if it ends only when somebody resumes it."""

    kind: Literal["queue", "job type", "schedule"]
    name: str
    queue: str | None
    since: str | None
    until: str | None
    by: str | None
    reason: str | None
    waiting: int | None = Field(description="Jobs that wait behind it; null for a schedule.")
    or_more: bool = Field(description="true: at least so many wait.")


class Schedule(Schema):
    """One schedule.  `next_runs` is empty while it is paused or off; `problem` says why it cannot run."""

    id: str
    name: str
    source: str
    job: str
    cron: str
    timezone: str
    state: Literal["on", "off", "paused"]
    next_runs: list[str]
    last_run: str | None
    problem: str


class ScheduleRun(Schema):
    """A scheduled time.  `ended` is the state of its job; without one: `missed`, `skipped`, `twin` (an equal unique job
    waited), `paused`, `due`, or `gone` (the job has left the history)."""

    at: str
    ended: str
    queue: str | None
    job: str | None


class ScheduleDay(Schedule):
    """A schedule with its times of the last 24 hours and the next 24, at most 24 each; `earlier`, `later`: are there
    more."""

    last_day: list[ScheduleRun] = []
    next_day: list[str] = []
    earlier: bool = False
    later: bool = False


class SchedulePage(Schema):
    """A page of schedules, by id.  `cursor` requests the next one; null = this is the last."""

    schedules: list[ScheduleDay]
    cursor: str | None


class SendRequest(Body):
    """Whether the entry may be sent although the store may have forgotten its id."""

    run_twice: Truth = Field(False, description="true: also if the entry is older than IDEMPOTENCY.")


class OutboxEntry(Schema):
    """One entry of the outbox.  Callers without the scope `read` see no `data`."""

    id: int = Field(description="The number of the entry.")
    kind: Literal["job", "workflow", "close"] = Field(description="`close`: the end of a batch.")
    key: str = Field(description="The id of the job, workflow or batch.")
    name: str
    queue: str | None
    batch: str | None = Field(description="The batch that the job joins, or that ends.")
    enqueued_at: str
    held: bool = Field(description="It is not sent until somebody decides.")
    old: bool = Field(description="It is older than IDEMPOTENCY: if it was sent before, it would run twice.")
    reason: str | None = Field(description="Why it was not sent at the last try.")
    data: Any = None


class OutboxPage(Schema):
    """A page of the outbox, the oldest entries first.  `cursor` requests the next one; null = this is the last."""

    entries: list[OutboxEntry]
    cursor: int | None


class RemovedEntry(Schema):
    """There is no such entry any more."""

    id: int
    deleted: bool


class Workflow(Schema):
    """One workflow or batch.  `closed` and `callbacks` (which were started) are null for a workflow."""

    id: str
    kind: Literal["workflow", "batch"]
    name: str
    state: Literal["running", "succeeded", "stopped", "cancelled"]
    created_at: str | None
    changed_at: str | None
    ended_at: str | None = Field(description="Null while something in it may still happen by itself.")
    total: int = Field(description="The number of its steps; of a batch: of its jobs so far.")
    counts: dict[str, int] = Field(description="How many steps are in each state.")
    progress: float = Field(description="The part of the steps that have ended: 0 to 1.")
    stopped_by: dict[str, int] = Field(description="How many steps ended without success, by state.")
    closed: bool | None
    callbacks: dict[str, bool] | None


class RetriedWorkflow(Workflow):
    """The workflow after its retry.  `ended_at` is null if jobs were queued again: it runs."""

    restarted: list[str] = Field(
        description="The first hundred ids of jobs that had ended without success, were queued again, and have not "
        "ended since. A call that is sent again has the same answer while they wait or run."
    )
    held: list[str] = Field(
        description="The first hundred ids of jobs that were not queued again: they are delivered at most once and may "
        "have been started."
    )
    taken: dict[str, str] = Field(
        description="The first hundred ids of jobs that were not queued again because another job holds their unique "
        "key, each with the id of that job."
    )


class WorkflowPage(Schema):
    """A page of workflows, newest first.  `cursor` requests the next one; null = this is the last."""

    workflows: list[Workflow]
    cursor: str | None


class Step(Schema):
    """One step of a workflow, or one job of a batch, in which `number`, `after` and `if_dead` are null."""

    number: int | None
    name: str
    job: str | None = Field(description="The job type; null in a batch if the job has left the history.")
    queue: str
    job_id: str
    state: Literal["waiting", "live", "succeeded", "dead", "cancelled", "expired", "deleted"] = Field(
        description="`waiting` for the steps before it; `live`: its job waits or runs."
    )
    job_state: str | None = Field(description="The state of its job; null if there is none now.")
    error: str | None
    after: list[int] | None = Field(description="The numbers of the steps before it.")
    if_dead: str | None


class StepPage(Schema):
    """A page of steps by number, or of jobs of a batch by id.  `cursor` requests the next; null = this is the last."""

    steps: list[Step]
    cursor: str | None


class BulkAnswer(Schema):
    """The answer for one item, in the place that the item had in the request."""

    model_config = ConfigDict(extra="allow")

    name: str
    id: str | None = Field(description="Null: neither an id nor an Idempotency-Key was sent.")
    status: int = Field(description="The status that the call for this item alone would have: 200, 201, 403, 404 …")
    problem: dict[str, Any] | None = Field(None, description="What is wrong, if the status is 400 or more.")


class BulkEnqueued(BulkAnswer):
    """What became of one job."""

    job: Job | None = Field(None, description="The job, if the status is 200 or 201.")


class BulkEnqueuedAll(Schema):
    """One answer for each job, in the order of the request."""

    jobs: list[BulkEnqueued]


class BulkExtended(BulkAnswer):
    """How long one of many claims is valid, and whether a user asked the job to stop."""

    lease: float | None = Field(None, description="Seconds, if the status is 200.")
    stop: bool | None = Field(None, description="Null unless the status is 200.")


class BulkExtendedAll(Schema):
    """One answer for each extension, in the order of the request."""

    extensions: list[BulkExtended]


class BulkReported(Schema):
    """One answer for each report, in the order of the request."""

    reports: list[BulkAnswer]


class Claimed(Schema):
    """A claimed job, which the caller must run now."""

    id: str
    name: str
    data: Any
    attempt: int
    token: int
    lease: float
    meta: dict[str, Any] | None = Field(None, description="What enqueue middleware sent with the job: a trace, say.")
    tags: list[str] = Field(default_factory=list, description="Words to find and count jobs by.")


class Claims(Schema):
    """Claimed jobs, which the caller must run now."""

    jobs: list[Claimed]


class Extended(Schema):
    """How long the claim is valid, and whether a user asked the job to stop."""

    lease: float
    stop: bool


class Queue(Schema):
    """One queue."""

    name: str
    counts: dict[str, int] = Field(description="Empty if the token is limited to some job types.")
    latency: float | None = Field(description="Seconds; null if the token is limited to some job types.")
    paused: bool
    reason: str | None
    until: str | None
    paused_jobs: list[str]
    max_concurrency: int
    max_length: int


class Stats(Schema):
    """All numbers at one moment, as `manage.py jobs stats --json` prints them."""

    states: dict[str, int]
    queues: dict[str, dict[str, Any]]
    totals: dict[str, int]
    workers: int


class Health(Schema):
    """The store works."""

    status: Literal["ok"]


class About(Schema):
    """What keeps a job from starting: a queue, another job, the workers, all queues."""

    kind: Literal["queue", "job", "workers", "queues"]
    name: str | None = Field(None, description="Of the queue; of a job, the queue that it is in.")
    id: str | None = Field(None, description="Of the job.")


class Finding(Schema):
    """One thing that is wrong, or (`not_checked`) could not be checked."""

    kind: str
    severity: Literal["error", "warning"]
    #: a worker, job type, schedule or workflow, a queue, or the store.
    subject: str
    #: null: not known.
    since: str | None
    says: str
    #: finer than the kind.
    cause: str | None = None
    queue: str | None = None
    #: what helps; null if the sentence says it.
    act: str | None = None
    #: address of the page in the admin that shows the cause.
    link: str | None = None


class Why(Schema):
    """Why a job does not start."""

    id: str
    queue: str
    state: str
    cause: str = Field(description="One word for programs, such as `queue_paused`; others may be added.")
    reason: str = Field(description="One sentence for people.")
    since: str | None = Field(description="Since when that is so, if it is known.")
    until: str | None = Field(description="When it ends by itself, if it does.")
    about: About | None
    findings: list[Finding] = Field([], description="What is wrong and may keep it from starting or ending.")


class ProblemDocument(Schema):
    """An error, application/problem+json (RFC 9457)."""

    type: str = Field(description="What to tell errors apart by.", json_schema_extra={"enum": TYPES})
    title: str
    status: int
    detail: str
