"""What `django_jobs.operations` offers for reading, and acts on all jobs that a query matches.

Admin, API and command line show and do the same.  Nothing here writes to the audit log: the caller does it.  All raise
StoreUnavailable if the store cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django_jobs import archive, browse
from django_jobs import schedules as periodic
from django_jobs.browse import JobCounts, Match, Series, workflow
from django_jobs.browse.counts import LIVE_QUEUES, TagCount
from django_jobs.browse.query.parsing import NO_STATE, state_of
from django_jobs.browse.workflows import Found
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import JobInfo, QueueStats, State, WorkerInfo
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import InvalidQuery, JobNotFound, PayloadError
from django_jobs.models.audit import AuditEntry
from django_jobs.operations import bulk, diagnosis, error_inbox, kept
from django_jobs.operations.actions import verb_of
from django_jobs.operations.archived import ArchivedJobs, archived
from django_jobs.operations.bulk import Operation, operations_list
from django_jobs.operations.diagnosis import Finding, Report, Why, acknowledge, withdraw
from django_jobs.operations.error_inbox import Error, decide
from django_jobs.operations.kept import delete as delete_entries
from django_jobs.operations.kept import send as send_entries
from django_jobs.operations.matching import Listed, first
from django_jobs.outbox import in_outbox
from django_jobs.paused import Paused, pauses
from django_jobs.samples.times import PERIODS, RunTimes
from django_jobs.schedules import Day, days, entries
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import chunks
from django_jobs.workflows.reading import StepInfo

__all__ = [
    "acknowledge",
    "apply",
    "archived_jobs",
    "bulk_operations",
    "charts",
    "counts",
    "decide",
    "delete_entries",
    "error",
    "errors",
    "find",
    "findings",
    "history",
    "job",
    "jobs",
    "outbox",
    "pause_schedule",
    "paused",
    "queues",
    "report",
    "resume_schedule",
    "retry",
    "run_schedule",
    "run_times",
    "schedules",
    "send_entries",
    "steps",
    "tags",
    "why",
    "withdraw",
    "workers",
    "workflow",
    "workflows",
]


def counts() -> JobCounts:
    """Return how many jobs are in each state, in all and of each queue.

    With many queues, these are the numbers that a worker counted some seconds ago (`at`)."""
    return browse.job_counts()


def queues() -> list[QueueStats]:
    """Return the numbers of every queue, counted now: jobs by state, the age of the oldest, pauses."""
    names = browse.queue_names()
    return [stats for each in chunks(names, LIVE_QUEUES) for stats in browse.queue_stats(each)]


def jobs(query: str, *, limit: int = 50) -> Listed:
    """Return the first jobs that a query matches, which names their state: `state:dead arg.customer_id=42`.

    Raises InvalidQuery."""
    state, match = _asked(query)
    return first(state, match, limit)


def job(id: str, queue: str = "") -> JobInfo:
    """Return a job by its id, from the archive if it has left the history.  Raises JobNotFound."""
    return find(id, queue)[0]


def find(id: str, queue: str = "") -> tuple[JobInfo, bool]:
    """Return the same, and whether it comes from the archive.  Raises JobNotFound."""
    info, waits = None, ""
    with suppress(PayloadError):  # an id with half of a surrogate pair: no job has it
        info = browse.find(id, [queue] if queue else browse.queue_names())
        if info is not None:
            return info, False
        if get_settings().archive is not None:
            info = archive.find(id, queue or None)
        if info is None:
            waits = in_outbox(id)
    if info is None:
        raise JobNotFound(f"There is no job {id!r}.{waits or ' It may have left the history.'}")
    return info, True


def archived_jobs(query: str = "", *, limit: int = 50) -> ArchivedJobs:
    """Return finished jobs in the archive that match a query, newest first.  Raises InvalidQuery or DatabaseError."""
    return archived(Match().asked(query, archived=True), limit=limit)


def tags(state: str, queue: str = "") -> list[TagCount]:
    """Return the tags of the jobs in this state, the most frequent first."""
    return browse.tag_counts(State(state), [queue] if queue else browse.queue_names())[0]


def charts(period: str = "hour", queue: str = "") -> Series:
    """Return the events of the last "hour" (by minute) or "day" (by 15 minutes), of one queue or of all."""
    return browse.series(period, [queue] if queue else None)


def workflows(state: str = "", *, limit: int = 50) -> Found:
    """Return workflows and batches, newest first: those that are "running", "succeeded", "stopped" or "cancelled", or
    all; and how many were looked at."""
    found = browse.find_workflows(state, limit=limit)
    while found.following and len(found.rows) < limit:
        more = browse.find_workflows(state, after=found.following, limit=limit - len(found.rows))
        found = more._replace(rows=found.rows + more.rows, looked_at=found.looked_at + more.looked_at)
    return found


def steps(id: str, *, limit: int = 100) -> list[StepInfo]:
    """Return the first steps of a workflow, or jobs of a batch.  Raises WorkflowNotFound."""
    info = workflow(id)
    return browse.batch_jobs(info, limit=limit).rows if info.kind == "batch" else browse.steps(id, limit=limit)


def schedules() -> list[Day]:
    """Return each schedule with what became of its times of the last 24 hours, and those of the next 24."""
    return days(entries())


def run_schedule(id: str) -> JobHandle:
    """Enqueue the job of a schedule once, now.  `id`: that of the schedule, or its label.  Raises UnknownSchedule, or
    what is wrong with the schedule."""
    return periodic.run_now(periodic.get_entry(id))


def pause_schedule(id: str) -> None:
    """Stop a schedule until it is resumed.  Raises UnknownSchedule."""
    periodic.pause(periodic.get_entry(id))


def resume_schedule(id: str) -> None:
    """Let a schedule run again; what it missed is not run later.  Raises UnknownSchedule."""
    periodic.resume(periodic.get_entry(id))


def run_times(period: str = "day", *, name: str = "", queue: str = "") -> list[RunTimes]:
    """Return how long the attempts of each job type waited and ran in the last "day" or "week", by queue; of the type
    and in the queue of that name, if they are given.

    Raises ValueError for another period."""
    if period not in PERIODS:
        raise ValueError(f"{period!r} is no period. Use 'day' or 'week'.")
    names, wanted = [queue] if queue else browse.queue_names(), registry.current_name(name) if name else ""
    some = chunks(names, LIVE_QUEUES)
    store = get_store()
    found = [times for each in some for times in store.run_times(each, [period], store.times(each))[period]]
    return [each for each in found if wanted in ("", each.name)]


def workers() -> list[WorkerInfo]:
    """Return the workers that report."""
    return get_store().workers()


def findings() -> list[Finding]:
    """Return what is wrong now, worst first, without what somebody has acknowledged."""
    return list(report().findings)


def report() -> Report:
    """Return the findings with what could not be checked, and what is acknowledged."""
    return diagnosis.check()


def errors() -> list[Error]:
    """Return the errors of jobs, those seen last first, also of jobs that are gone."""
    return error_inbox.inbox().errors


def error(id: str) -> Error | None:
    """Return the error with that id; None if it is not remembered."""
    return error_inbox.find(id)


def outbox(held: bool | None = None, *, limit: int = 50) -> list[dict[str, Any]]:
    """Return entries of the outbox, the oldest first, as the API gives them.  `held`: only those that wait for a
    decision, or only the others.  Raises DatabaseError."""
    return [kept.entry_payload(row) for row in kept.page(held, limit=limit)[0]]


def history(*, user: str = "", source: str = "", limit: int = 50) -> Sequence[AuditEntry]:
    """Return what people did, newest first: this user, token or user of a shell, by this way ("admin", "http",
    "command").  Raises DatabaseError."""
    by = {"actor": user, "source": source}
    return list(AuditEntry.objects.filter(**{field: value for field, value in by.items() if value})[:limit])


def bulk_operations() -> list[Operation]:
    """Return the acts on all jobs of a query, newest first, with how far they are."""
    return operations_list()


def why(id: str, queue: str = "") -> Why:
    """Return why a job does not start, or that it has started or ended, with the findings that concern it.

    Raises JobNotFound."""
    return diagnosis.why(find(id, queue)[0])


def paused() -> list[Paused]:
    """Return the queues, job types and schedules that are paused, what has been paused longest first."""
    return pauses()


def retry(query: str, *, start_again: bool = False, by: str = "") -> bulk.Operation:
    """Queue all jobs again that a query matches: `apply("retry", query)`."""
    return apply("retry", query, by=by, start_again=start_again)


def apply(verb: str, query: str, *, by: str = "", **details: Any) -> bulk.Operation:
    """Apply "retry", "cancel", "kill", "delete" or "reschedule" to all jobs that a query matches, in batches.

    The query names their state.  Jobs that come into that state later are left alone.  `by` is the user, as text.
    `details`: `start_again` of "retry", `reason` of "kill", `run_at` (ms) of "reschedule".  The answer says how many
    moved.  If this process dies, a worker goes on.  Raises InvalidQuery, and ValueError if the verb does not apply."""
    state, match = _asked(query)
    return bulk.finish(bulk.start(verb_of(verb), state, match, user=by, **details))


def _asked(query: str) -> tuple[State, Match]:
    state = state_of(query)
    if state is None:
        raise InvalidQuery(NO_STATE, 0)
    return state, Match().asked(query, state)
