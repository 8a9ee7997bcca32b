"""`schedules`, `run`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django_jobs import registry, schedule_state, schedules
from django_jobs.exceptions import InvalidSchedule, UnknownJob
from django_jobs.management.jobs_commands.base import Answer, Subcommand, no_arguments, table
from django_jobs.schedule_entry import Entry
from django_jobs.stores import get_store

#: Next runs told of each schedule.
NEXT = 3
HEADINGS = ("schedule", "job", "cron", "time zone", "state", "next run", "last run")


def show(options: Mapping[str, Any]) -> Answer:
    store = get_store()
    state, now = schedule_state.read_state(store), schedules.from_ms(store.now())
    fired: dict[str, dict[str, int]] = {}
    found = [described(entry, state, now, fired) for entry in schedules.entries()]
    rows = [
        (
            each["id"],
            each["job"],
            each["cron"],
            each["timezone"],
            each["problem"] or each["state"],
            on_its_clock(each, each["next_runs"][0]) if each["next_runs"] else "-",
            on_its_clock(each, each["last_run"]) if each["last_run"] else "-",
        )
        for each in found
    ]
    return Answer(found, table(HEADINGS, rows) if rows else "There are no schedules.")


def on_its_clock(schedule: Mapping[str, Any], time: str) -> str:
    """A time in the zone of the schedule, where its expression can be compared with it; as it is if there is none."""
    try:
        return datetime.fromisoformat(time).astimezone(ZoneInfo(schedule["timezone"])).isoformat()
    except (KeyError, ValueError, TypeError, OSError):
        return time


def described(
    entry: Entry, state: schedule_state.ScheduleState, now: datetime, fired: dict[str, dict[str, int]]
) -> dict[str, Any]:
    """One schedule for programs; `fired` remembers what each queue was asked for."""
    problem, runs = "", []
    try:
        runs = [run.isoformat() for run in schedules.next_runs(entry, NEXT, now)]
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
        "last_run": last_run(entry, fired),
        "problem": problem,
    }


def last_run(entry: Entry, fired: dict[str, dict[str, int]]) -> str | None:
    try:
        queue = registry.get(entry.job).queue
    except UnknownJob:
        return None
    if queue not in fired:
        fired[queue] = get_store().fired(queue)
    at = fired[queue].get(entry.id)
    return None if at is None else schedules.from_ms(at).isoformat()


def which(parser: ArgumentParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help="its id, as `jobs schedules` prints it, or its name")


def run(options: Mapping[str, Any]) -> Answer:
    entry = schedules.get_entry(options["schedule"])
    handle = schedules.run_now(entry)
    data = {"schedule": entry.id, "id": handle.id, "name": handle.name, "queue": handle.queue}
    return Answer(data, f"{entry.id} was enqueued as job {handle.id}.")


SCHEDULES = Subcommand("List the schedules, with next and last runs.", no_arguments, show)
RUN = Subcommand("Enqueue the job of a schedule once, now.", which, run)
