"""`schedules`, `run`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

from django_jobs import operations, schedules
from django_jobs.core.values import Added
from django_jobs.enqueueing.handle import DEFERRED
from django_jobs.formatting import plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, table
from django_jobs.management.jobs_commands.enqueueing import equal_waits
from django_jobs.models import audit
from django_jobs.serialization.payloads import iso

HEADINGS = ("schedule", "job", "cron", "time zone", "state", "next run", "last run")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tonight", action="store_true", help="what starts in the next 24 hours, and what became of the last 24"
    )


def show(options: Mapping[str, Any]) -> CommandResult:
    if options["tonight"]:
        return tonight()
    found = schedules.described(schedules.entries())
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
    return CommandResult(found, table(HEADINGS, rows) if rows else "There are no schedules.")


def tonight() -> CommandResult:
    found = operations.schedules()
    lines = []
    for day in sorted(found, key=lambda day: day.next[0] if day.next else inf):
        ended = Counter(run.ended for run in day.last)
        told = ", ".join(f"{number} {word}" for word, number in ended.items()) or "nothing"
        starts = [on_its_clock({"timezone": day.entry.timezone}, iso(at) or "") for at in day.next]
        lines.append(
            f"{day.entry.id}\n  last 24 hours: {'the latest: ' if day.earlier else ''}{told}\n"
            f"  next 24 hours: {', '.join(starts) or 'nothing'}{', …' if day.later else ''}"
        )
        lines += [f"  {iso(run.at)}: {run.says}" for run in day.last if run.says and run.ended != "gone"]
        lines += [f"  It cannot run: {plain(day.problem, 300)}"] if day.problem else []
    data = [{"id": day.entry.id, "problem": day.problem} | day.payload() for day in found]
    return CommandResult(data, "\n".join(lines) or "There are no schedules.")


def on_its_clock(schedule: Mapping[str, Any], time: str) -> str:
    """Return a time in the schedule's zone, for comparison with its expression; unchanged if it has no zone."""
    try:
        return datetime.fromisoformat(time).astimezone(ZoneInfo(schedule["timezone"])).isoformat()
    except (KeyError, ValueError, TypeError, OSError):
        return time


def which(parser: ArgumentParser) -> None:
    parser.add_argument("schedule", metavar="SCHEDULE", help="its id, as `jobs schedules` prints it, or its name")


def run(options: Mapping[str, Any]) -> CommandResult:
    entry = schedules.get_entry(options["schedule"])
    handle = schedules.run_now(entry)
    is_new = handle.added in (None, Added.ADDED)
    data = {"schedule": entry.id, "id": handle.id, "name": handle.name, "queue": handle.queue, "added": is_new}
    act = audit.Act("run", audit.ObjectKind.SCHEDULE, entry.id, audit.run_details(handle))
    acts = [] if handle.added is Added.DUPLICATE else [act]
    if not is_new:
        return CommandResult(data, f"{entry.id}: {equal_waits(handle)}", acts=acts)
    after = "will be enqueued as job {} after the commit." if handle.state == DEFERRED else "was enqueued as job {}."
    return CommandResult(data, f"{entry.id} {after.format(handle.id)}", acts=acts)


SCHEDULES = Subcommand("List the schedules, with next and last runs.", arguments, show)
RUN = Subcommand("Run a schedule now: enqueue its job once.", which, run)
