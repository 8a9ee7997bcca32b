"""All periodic jobs: from `@job(cron=…)`, DJANGO_JOBS["SCHEDULES"] and the Schedule table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django_jobs.core import registry
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import digest_of_call
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import InvalidSchedule, UnknownSchedule
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.cron import next_run
from django_jobs.schedules.entry import ScheduleEntry, check_entry
from django_jobs.schedules.gaps import Gap, note_gap
from django_jobs.schedules.interval import NEVER
from django_jobs.schedules.models import Schedule
from django_jobs.schedules.sources import code_entries
from django_jobs.serialization.arguments import dump
from django_jobs.stores import get_store

#: Number of next runs described for each schedule.
NEXT = 3


def entries() -> list[ScheduleEntry]:
    """Return every schedule, those from code and settings first.  Reads the database."""
    return [*code_entries(), *database_entries()]


def database_entries() -> list[ScheduleEntry]:
    """Return the rows of the Schedule table."""
    return [row.entry() for row in Schedule.objects.all()]


def get_entry(name: str) -> ScheduleEntry:
    """Return the schedule with that id ("settings:nightly"), or that label if it is unique.  Raises UnknownSchedule."""
    everything = entries()
    found = [each for each in everything if each.id == name] or [each for each in everything if each.label == name]
    if len(found) == 1:
        return found[0]
    known = ", ".join(repr(each.id) for each in everything) or "none"
    what = "Several schedules are" if found else "No schedule is"
    raise UnknownSchedule(f"{what} named {name!r}. Use one of these ids: {known}.")


def next_runs(entry: ScheduleEntry, n: int = 5, after: datetime | None = None) -> list[datetime]:
    """Return the next `n` scheduled times (UTC, without jitter) after a moment, by default now by the store's clock.

    There are fewer if the schedule has a single time.  Raises InvalidSchedule if it cannot run."""
    check_entry(entry)
    moment = after or from_ms(get_store().now())
    found: list[datetime] = []
    for _ in range(n):
        moment = next_run(entry.cron, moment, entry.zone)
        if moment >= NEVER:
            break
        found.append(moment)
    return found


def last_run(entry: ScheduleEntry) -> datetime | None:
    """Return the scheduled time of its last run, or None."""
    at = schedule_state.read_state(get_store()).last_run(entry).at
    return from_ms(at) if at else None


def queue_of(entry: ScheduleEntry) -> str:
    """Return the queue of its jobs.  Raises InvalidSchedule or UnknownJob."""
    check_entry(entry)
    return entry.queue or registry.get(entry.job).placed(entry.args, entry.kwargs)[0]


def run_now(entry: ScheduleEntry, *, job_id: str | None = None, on_commit: bool | None = None) -> JobHandle:
    """Enqueue its job once, now, in addition to its scheduled runs.  Raises the error in its entry, or a StoreError."""
    check_entry(entry)
    meta, digest = {"schedule": entry.id}, digest_of_run(entry) if job_id is not None else None
    expires_at = None
    if entry.expires_in is not None:
        expires_at = from_ms(get_store().now()) + timedelta(seconds=entry.expires_in)
    return enqueue_by_name(
        entry.job,
        entry.args,
        entry.kwargs,
        queue=entry.queue or None,
        priority=entry.priority,
        expires_at=expires_at,
        job_id=job_id,
        on_commit=on_commit,
        meta=meta,
        digest=digest,
    )


def digest_of_run(entry: ScheduleEntry) -> str:
    """Return the digest with which the id of a run by hand is remembered.  Enqueue middleware does not change it."""
    return digest_of_call(registry.get(entry.job).name, dump(entry.args, entry.kwargs))


def pause(entry: ScheduleEntry) -> bool:
    """Pause it in the whole fleet; jobs that it has enqueued still run.  Returns False if it was paused already."""
    store = get_store()
    return schedule_state.pause(store, entry, store.now())


def resume(entry: ScheduleEntry) -> bool:
    """Let it run again from now on.  Runs that were missed in the pause are not run later.

    Returns False if it was not paused: a second call must not skip runs that became due since the first."""
    store = get_store()
    paused, now = schedule_state.read_state(store).paused_at(entry), store.now()
    if paused is None or not schedule_state.resume(store, entry, paused, now):
        return False
    note_gap(store, entry.id, Gap(paused, now, "paused"))
    return True


def paused_at(entry: ScheduleEntry) -> datetime | None:
    """Return since when it is paused, or None."""
    at = schedule_state.read_state(get_store()).paused_at(entry)
    return None if at is None else from_ms(at)


def described(entries: Iterable[ScheduleEntry]) -> list[dict[str, Any]]:
    """Describe schedules as JSON objects.  Takes two reads of the store, whatever their number."""
    store = get_store()
    state, now = schedule_state.read_state(store), from_ms(store.now())
    return [_described(entry, state, now) for entry in entries]


def _described(entry: ScheduleEntry, state: schedule_state.ScheduleState, now: datetime) -> dict[str, Any]:
    problem, runs = "", []
    try:
        runs = [run.isoformat() for run in next_runs(entry, NEXT, now)]
    except InvalidSchedule as error:
        problem = str(error)
    paused, last = state.paused_at(entry) is not None, state.last_run(entry).at
    return {
        "id": entry.id,
        "name": entry.label,
        "source": entry.source,
        "job": entry.job,
        "cron": entry.cron,
        "timezone": entry.timezone,
        "state": "paused" if paused else "on" if entry.enabled else "off",
        "next_runs": runs if entry.enabled and not paused else [],
        "last_run": from_ms(last).isoformat() if last else None,
        "problem": problem,
    }


def to_ms(at: datetime) -> int:
    """Convert a datetime to a store's time (ms), without its part of a second: scheduled times have none."""
    return int(at.timestamp()) * 1000


def from_ms(at: int) -> datetime:
    """Convert a store's time (ms) to a datetime."""
    return datetime.fromtimestamp(at / 1000, UTC)
