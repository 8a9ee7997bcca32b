"""All periodic jobs: from `@job(cron=…)`, DJANGO_JOBS["SCHEDULES"] and the Schedule table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_jobs.core import registry
from django_jobs.enqueue.handle import JobHandle
from django_jobs.enqueue.submit import enqueue_by_name
from django_jobs.exceptions import InvalidSchedule, UnknownSchedule
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import next_run
from django_jobs.schedules.entry import Entry, check_entry
from django_jobs.schedules.models import Schedule
from django_jobs.schedules.sources import code_entries
from django_jobs.stores import get_store

#: Number of next runs described for each schedule.
NEXT = 3


def entries() -> list[Entry]:
    """Return every schedule, those from code and settings first.  Reads the database."""
    return [*code_entries(), *database_entries()]


def database_entries() -> list[Entry]:
    """Return the rows of the Schedule table."""
    return [row.entry() for row in Schedule.objects.all()]


def get_entry(name: str) -> Entry:
    """Return the schedule with that id ("settings:nightly"), or that label if it is unique.  Raises UnknownSchedule."""
    everything = entries()
    found = [each for each in everything if each.id == name] or [each for each in everything if each.label == name]
    if len(found) == 1:
        return found[0]
    known = ", ".join(repr(each.id) for each in everything) or "none"
    what = "Several schedules are" if found else "No schedule is"
    raise UnknownSchedule(f"{what} named {name!r}. Use one of these ids: {known}.")


def next_runs(entry: Entry, n: int = 5, after: datetime | None = None) -> list[datetime]:
    """Return the next `n` scheduled times (UTC, without jitter) after a moment, by default now by the store's clock.

    Raises InvalidSchedule if there are none."""
    check_entry(entry)
    moment = after or from_ms(get_store().now())
    found: list[datetime] = []
    for _ in range(n):
        moment = next_run(entry.cron, moment, entry.zone)
        found.append(moment)
    return found


def last_run(entry: Entry) -> datetime | None:
    """Return the scheduled time of its last run, or None.  Raises UnknownJob if no such job is registered."""
    at = get_store().last_runs(registry.get(entry.job).queue).get(entry.id)
    return None if at is None else from_ms(at)


def queue_of(entry: Entry) -> str:
    """Return the queue of its jobs.  Raises InvalidSchedule or UnknownJob."""
    check_entry(entry)
    return registry.get(entry.job).queue


def run_now(entry: Entry, *, job_id: str | None = None, on_commit: bool | None = None) -> JobHandle:
    """Enqueue its job once, now, in addition to its scheduled runs.  Raises the error in its entry, or a StoreError."""
    check_entry(entry)
    meta = {"schedule": entry.id}
    return enqueue_by_name(entry.job, entry.args, entry.kwargs, job_id=job_id, on_commit=on_commit, meta=meta)


def pause(entry: Entry) -> None:
    """Pause it in the whole fleet; jobs that it has enqueued still run.  Does nothing if it is paused already."""
    store = get_store()
    if schedule_state.read_state(store).paused_at(entry) is not None:
        return
    schedule_state.pause(store, entry, store.now())


def resume(entry: Entry) -> None:
    """Let it run again from now on.  Runs that were missed in the pause are not run later.

    Does nothing if it is not paused: a second call must not skip runs that became due since the first."""
    store = get_store()
    if schedule_state.read_state(store).paused_at(entry) is None:
        return
    schedule_state.resume(store, entry, store.now())


def paused_at(entry: Entry) -> datetime | None:
    """Return since when it is paused, or None."""
    at = schedule_state.read_state(get_store()).paused_at(entry)
    return None if at is None else from_ms(at)


def described(
    entry: Entry, state: schedule_state.ScheduleState, now: datetime, last_runs: dict[str, dict[str, int]]
) -> dict[str, Any]:
    """Describe one schedule as a JSON object.  `last_runs` caches the last runs of each queue."""
    problem, runs = "", []
    try:
        runs = [run.isoformat() for run in next_runs(entry, NEXT, now)]
    except InvalidSchedule as error:
        problem = str(error)
    paused = state.paused_at(entry) is not None
    return {
        "id": entry.id,
        "name": entry.label,
        "source": entry.source,
        "job": entry.job,
        "cron": entry.cron,
        "timezone": entry.timezone,
        "state": "paused" if paused else "on" if entry.enabled else "off",
        "next_runs": runs if entry.enabled and not paused else [],
        "last_run": _last_run(entry, last_runs),
        "problem": problem,
    }


def _last_run(entry: Entry, last_runs: dict[str, dict[str, int]]) -> str | None:
    if (definition := registry.find(entry.job)) is None:
        return None
    queue = definition.queue
    if queue not in last_runs:
        last_runs[queue] = get_store().last_runs(queue)
    at = last_runs[queue].get(entry.id)
    return None if at is None else from_ms(at).isoformat()


def from_ms(at: int) -> datetime:
    """Convert a store's time (ms) to a datetime."""
    return datetime.fromtimestamp(at / 1000, UTC)
