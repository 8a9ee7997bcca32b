"""What alarms are made of: measured facts.  Reads the store and the table of schedules; changes nothing.

A look that fails does not stop the others: it is listed as not checked, with the reason.  Only a store that cannot be
reached ends the measurement, with StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError

from django_jobs import browse, remote, schedules
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import State, WorkerInfo
from django_jobs.exceptions import JobsError, StoreError, StoreUnavailable, UnknownJob
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import latest_runs
from django_jobs.schedules.entry import Entry, check_entry
from django_jobs.schedules.missed import STILL_IN_TIME
from django_jobs.stores import get_store
from django_jobs.stores.values.answers import ParkedName

#: At most this many schedules are checked: the last scheduled time of each must be computed.
SCHEDULES = 200
#: Queues whose archive list or unknown names are asked for.
QUEUES = 5

Seen = TypeVar("Seen")


class Unchecked(NamedTuple):
    """Something that could not be checked."""

    #: "counts" | "names" | "failures" | "server" | "schedules" | "archive"
    what: str
    why: str = ""
    #: how many queues or schedules; 0 = all.
    number: int = 0


class LateSchedule(NamedTuple):
    """A schedule that did not run, or cannot."""

    name: str
    #: ms: the scheduled time for which no job was enqueued; 0 = it cannot run.
    missed: int = 0
    problem: str = ""


class ArchiveWaiting(NamedTuple):
    """Finished jobs of one queue that the archiver has not written yet."""

    queue: str
    number: int
    #: ms: when the first of them ended.
    since: int
    #: how many may wait.
    most: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured at one moment.  Times in ms by the store's clock.  None: not checked, or it does not apply."""

    now: int
    counted: browse.JobCounts
    workers: Sequence[WorkerInfo]
    unknown: Sequence[ParkedName] | None = ()
    #: events per minute of the last hour.
    hour: browse.Series | None = None
    #: as Store.describe.
    server: Mapping[str, str] | None = None
    late: Sequence[LateSchedule] | None = ()
    #: number of schedules that are switched on and not paused.
    schedules: int = 0
    archive: Sequence[ArchiveWaiting] | None = ()
    #: queues that are served over HTTP, by workers that do not report.
    pull_queues: frozenset[str] = frozenset()
    unchecked: Sequence[Unchecked] = field(default_factory=tuple)


def measure(
    counted: browse.JobCounts | None = None,
    workers: Sequence[WorkerInfo] | None = None,
    hour: browse.Series | None = None,
    server: Mapping[str, str] | None = None,
) -> Facts:
    """Check everything; what the caller has read already is not read again.  Raises StoreUnavailable."""
    store = get_store()
    counted = browse.job_counts() if counted is None else counted
    workers = store.workers() if workers is None else workers
    unchecked: list[Unchecked] = []
    if counted.missing:
        unchecked.append(Unchecked("counts", number=counted.missing))
    if len(counted.names) > LIVE_QUEUES and not counted.at:
        unchecked.append(Unchecked("failures", "there are many queues, and no worker publishes their numbers"))
    if (left := len(counted.holding(State.BLOCKED)) - LIVE_QUEUES) > 0:
        unchecked.append(Unchecked("names", f"too many queues have blocked jobs ({left} were left out)"))

    def look(what: str, read: Callable[[], Seen]) -> Seen | None:
        try:
            return read()
        except StoreUnavailable:
            raise
        except (StoreError, DatabaseError, InterfaceError, ImproperlyConfigured) as error:
            unchecked.append(Unchecked(what, f"{type(error).__name__}: {error}"))
            return None

    facts = Facts(
        now=store.now(),
        counted=counted,
        workers=workers,
        unknown=look("names", lambda: browse.unknown_names(counted, list(workers))),
        hour=look("failures", lambda: browse.series("hour", counted.names) if hour is None else hour),
        server=look("server", store.describe) if server is None else server,
        archive=look("archive", lambda: archive_waiting(counted)),
        pull_queues=look("names", remote.pull_queues) or frozenset(),
    )
    if facts.server is not None and "unknown" in (facts.server.get("eviction_policy"), facts.server.get("role")):
        unchecked.append(Unchecked("server", "it does not tell them"))
    if entries := look("schedules", schedules.entries):
        some = entries[:SCHEDULES]
        if len(some) < len(entries):
            unchecked.append(Unchecked("schedules", number=len(entries) - len(some)))
        checked = look("schedules", lambda: late_schedules(some, facts.now))
        late, active = checked if checked is not None else (None, 0)
        facts = replace(facts, late=late, schedules=active)
    return replace(facts, unchecked=tuple(unchecked))


def archive_waiting(counted: browse.JobCounts) -> list[ArchiveWaiting]:
    """Return the queues whose finished jobs wait for the archiver, most first."""
    if get_settings().archive is None:
        return []
    store = get_store()
    waiting = sorted((stats.unarchived, name) for name, stats in counted.queues.items() if stats.unarchived)
    found = []
    for number, queue in waiting[: -QUEUES - 1 : -1]:
        first = store.archive_batch(queue, 1)
        if first:
            found.append(ArchiveWaiting(queue, number, first[0][1].at, store.options.backlog))
    return found


def late_schedules(entries: Sequence[Entry], now: int) -> tuple[list[LateSchedule], int]:
    """Return the schedules that did not run or cannot, and the number of those that are on and not paused."""
    state = schedule_state.read_state(get_store())
    last_runs: dict[str, dict[str, int]] = {}
    late: list[LateSchedule] = []
    on = [entry for entry in entries if entry.enabled and state.paused_at(entry) is None]
    for entry in on:
        try:
            check_entry(entry)
            queue = registry.get(entry.job).queue
            if queue not in last_runs:
                last_runs[queue] = get_store().last_runs(queue)
            if missed := missed_run(entry, state, last_runs[queue].get(entry.id, 0), now):
                late.append(LateSchedule(entry.label or entry.id, missed))
        except (StoreError, UnknownJob) as error:
            if isinstance(error, StoreError):
                raise
            late.append(LateSchedule(entry.label or entry.id, problem=str(error)))
        except JobsError as error:
            late.append(LateSchedule(entry.label or entry.id, problem=str(error)))
    return late, len(on)


def missed_run(entry: Entry, state: schedule_state.ScheduleState, last: int, now: int) -> int:
    """Return the last scheduled time (ms) that passed over a minute ago without a job and was not skipped; 0 = none.

    A schedule that no worker has ever seen has no scheduled times yet."""
    since = state.since(entry)
    if since is None:
        return 0
    cursor = schedules.from_ms(max(since, last, state.passed_over(entry)))
    until = schedules.from_ms(now) - STILL_IN_TIME
    runs = latest_runs(entry.cron, cursor, until, entry.zone, 1) if until - cursor > timedelta() else []
    return int(runs[0].timestamp()) * 1000 if runs else 0


def work_of(counted: browse.JobCounts, queue: str) -> int:
    """Return how many jobs of this queue need a worker now: all that have not ended, except jobs that are not due."""
    stats = counted.queues[queue]
    wanted = sum(stats.counts.get(state, 0) for state in (State.QUEUED, State.RUNNING, State.RETRY, State.BLOCKED))
    return max(wanted, stats.overdue)
