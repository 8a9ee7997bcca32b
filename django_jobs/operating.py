"""What `django_jobs.operations` offers for reading, and acts on all jobs that a query matches.

Admin, API and command line show and do the same.  Nothing here writes to the audit log: the caller does it.  All raise
StoreUnavailable if the store cannot be reached.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django_jobs import archive, browse
from django_jobs.browse import JobCounts, Match
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.browse.query.parsing import NO_STATE, state_of
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import JobInfo, QueueStats, State, WorkerInfo
from django_jobs.exceptions import InvalidQuery, JobNotFound, PayloadError
from django_jobs.operations import bulk, diagnosis
from django_jobs.operations.actions import verb_of
from django_jobs.operations.diagnosis import Finding, Report, Why
from django_jobs.operations.matching import Listed, first
from django_jobs.paused import Paused, pauses
from django_jobs.samples.times import PERIODS, RunTimes
from django_jobs.schedules import Day, days, entries
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import chunks


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


def find(id: str, queue: str = "", *, archived: bool = True) -> tuple[JobInfo, bool]:
    """Return the same, and whether it comes from the archive.  Raises JobNotFound."""
    info = None
    with suppress(PayloadError):  # an id with half of a surrogate pair: no job has it
        info = browse.find(id, [queue] if queue else browse.queue_names())
        if info is not None:
            return info, False
        if archived and get_settings().archive is not None:
            info = archive.find(id, queue or None)
    if info is None:
        raise JobNotFound(f"There is no job {id!r}. It may have left the history.")
    return info, True


def schedules() -> list[Day]:
    """Return each schedule with what became of its times of the last 24 hours, and those of the next 24."""
    return days(entries())


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


def why(id: str, queue: str = "") -> Why:
    """Return why a job does not start, or that it has started or ended, with the findings that concern it.

    Raises JobNotFound."""
    return diagnosis.why(find(id, queue, archived=False)[0])


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
