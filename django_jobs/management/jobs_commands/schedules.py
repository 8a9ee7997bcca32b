"""`schedules`, `run`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django_jobs import schedules
from django_jobs.management.jobs_commands.base import Answer, Subcommand, no_arguments, table
from django_jobs.models import audit
from django_jobs.schedules import state as schedule_state
from django_jobs.stores import get_store

HEADINGS = ("schedule", "job", "cron", "time zone", "state", "next run", "last run")


def show(options: Mapping[str, Any]) -> Answer:
    store = get_store()
    state, now = schedule_state.read_state(store), schedules.from_ms(store.now())
    last_runs: dict[str, dict[str, int]] = {}
    found = [schedules.described(entry, state, now, last_runs) for entry in schedules.entries()]
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
    """Return a time in the schedule's zone, for comparison with its expression; unchanged if it has no zone."""
    try:
        return datetime.fromisoformat(time).astimezone(ZoneInfo(schedule["timezone"])).isoformat()
    except (KeyError, ValueError, TypeError, OSError):
        return time


def which(parser: ArgumentParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help="its id, as `jobs schedules` prints it, or its name")


def run(options: Mapping[str, Any]) -> Answer:
    entry = schedules.get_entry(options["schedule"])
    handle = schedules.run_now(entry)
    act = audit.Act("run", audit.Kind.SCHEDULE, entry.id, {"job": [handle.queue, handle.id]})
    data = {"schedule": entry.id, "id": handle.id, "name": handle.name, "queue": handle.queue}
    return Answer(data, f"{entry.id} was enqueued as job {handle.id}.", acts=[act])


SCHEDULES = Subcommand("List the schedules, with next and last runs.", no_arguments, show)
RUN = Subcommand("Run a schedule now: enqueue its job once.", which, run)
