"""All periodic jobs: from `@job(cron=…)`, from DJANGO_JOBS["SCHEDULES"], from the Schedule table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_jobs.core import registry
from django_jobs.enqueue.handle import JobHandle
from django_jobs.enqueue.submit import enqueue_by_name
from django_jobs.exceptions import InvalidSchedule, UnknownJob, UnknownSchedule
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import next_fire
from django_jobs.schedules.entry import Entry, check_entry
from django_jobs.schedules.models import Schedule
from django_jobs.schedules.sources import code_entries
from django_jobs.stores import get_store

#: Next runs told of each schedule.
NEXT = 3


def entries() -> list[Entry]:
    """Every schedule there is, those of the code first.  Reads the database."""
    return [*code_entries(), *database_entries()]


def database_entries() -> list[Entry]:
    """The rows of the Schedule table."""
    return [row.entry() for row in Schedule.objects.all()]


def get_entry(name: str) -> Entry:
    """The schedule with that id ("settings:nightly"), or that label if only one has it.  Raises UnknownSchedule."""
    everything = entries()
    found = [each for each in everything if each.id == name] or [each for each in everything if each.label == name]
    if len(found) == 1:
        return found[0]
    known = ", ".join(repr(each.id) for each in everything) or "none"
    what = "Several schedules are" if found else "No schedule is"
    raise UnknownSchedule(f"{what} named {name!r}. Use one of these ids: {known}.")


def next_runs(entry: Entry, n: int = 5, after: datetime | None = None) -> list[datetime]:
    """The next `n` fire times (UTC, jitter left out) after a moment, by default the store's now.

    Raises InvalidSchedule if there can be none."""
    check_entry(entry)
    moment = after or from_ms(get_store().now())
    found: list[datetime] = []
    for _ in range(n):
        moment = next_fire(entry.cron, moment, entry.zone)
        found.append(moment)
    return found


def last_run(entry: Entry) -> datetime | None:
    """The last fire time that was enqueued, or None.  Raises UnknownJob if nobody knows the job."""
    at = get_store().fired(registry.get(entry.job).queue).get(entry.id)
    return None if at is None else from_ms(at)


def queue_of(entry: Entry) -> str:
    """Where its jobs go.  Raises InvalidSchedule or UnknownJob."""
    check_entry(entry)
    return registry.get(entry.job).queue


def run_now(entry: Entry, *, job_id: str | None = None, on_commit: bool | None = None) -> JobHandle:
    """Enqueue its job once, now, beside the fire times.  Raises what is wrong with it, or a StoreError."""
    check_entry(entry)
    meta = {"schedule": entry.id}
    return enqueue_by_name(entry.job, entry.args, entry.kwargs, job_id=job_id, on_commit=on_commit, meta=meta)


def pause(entry: Entry) -> None:
    """Stop its fires in the whole fleet; jobs that are enqueued already run.  One that is paused stays as it is."""
    store = get_store()
    if schedule_state.read_state(store).paused_at(entry) is not None:
        return
    schedule_state.pause(store, entry, store.now())


def resume(entry: Entry) -> None:
    """Let it fire again from now on; what was missed in the pause is not made up for.

    One that is not paused stays as it is: a second call must not pass over what was due since the first."""
    store = get_store()
    if schedule_state.read_state(store).paused_at(entry) is None:
        return
    schedule_state.resume(store, entry, store.now())


def paused_at(entry: Entry) -> datetime | None:
    """Since when it is paused, or None."""
    at = schedule_state.read_state(get_store()).paused_at(entry)
    return None if at is None else from_ms(at)


def described(
    entry: Entry, state: schedule_state.ScheduleState, now: datetime, fired: dict[str, dict[str, int]]
) -> dict[str, Any]:
    """One schedule for programs: a JSON object.  `fired` remembers what each queue was asked for."""
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
        "last_run": _last_run(entry, fired),
        "problem": problem,
    }


def _last_run(entry: Entry, fired: dict[str, dict[str, int]]) -> str | None:
    try:
        queue = registry.get(entry.job).queue
    except UnknownJob:
        return None
    if queue not in fired:
        fired[queue] = get_store().fired(queue)
    at = fired[queue].get(entry.id)
    return None if at is None else from_ms(at).isoformat()


def from_ms(at: int) -> datetime:
    """A store's time as people's."""
    return datetime.fromtimestamp(at / 1000, UTC)
