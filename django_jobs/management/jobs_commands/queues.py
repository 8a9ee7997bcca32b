"""`pause`, `resume`, `paused`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import browse, operations, schedules
from django_jobs.core import registry
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, no_arguments, table
from django_jobs.models import audit
from django_jobs.paused import pauses, payload
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.stores import get_store


def what(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", default="", metavar="QUEUE")
    parser.add_argument("--job", default="", metavar="NAME", help="a job type, in QUEUE or in every queue")
    parser.add_argument("--schedule", default="", metavar="SCHEDULE", help="a schedule, by its id or its name")


def pause_arguments(parser: ArgumentParser) -> None:
    what(parser)
    parser.add_argument(
        "--for", dest="seconds", type=float, metavar="S", help="resume automatically after this many seconds"
    )
    parser.add_argument("--reason", default="")


def pause(options: Mapping[str, Any]) -> CommandResult:
    if options["schedule"]:
        return on_schedule("pause", schedules.pause, options)
    seconds = options["seconds"]
    if seconds is not None and not 0 < seconds < 10**9:
        raise CommandError(f"--for is {seconds}: use a number of seconds above 0.")
    until = get_store().now() + int(seconds * 1000) if seconds else 0
    queues, name = chosen(options)
    reason, by = options["reason"], audit.shell_user()
    closed = [queue for queue in queues if operations.pause(queue, name=name, reason=reason, until=until, by=by)]
    facts = {"job_type": name, "reason": reason, "until": until}
    return answer(
        "paused", queues, name, [audit.Act("pause", audit.ObjectKind.QUEUE, queue, facts) for queue in closed]
    )


def resume(options: Mapping[str, Any]) -> CommandResult:
    if options["schedule"]:
        return on_schedule("resume", schedules.resume, options)
    queues, name = chosen(options)
    ended = {queue: operations.resume(queue, name=name) for queue in queues}
    acts = [
        audit.Act("resume", audit.ObjectKind.QUEUE, queue, {"job_type": name, "paused": audit.pause_details(pause)})
        for queue, pause in ended.items()
        if pause is not None
    ]
    return answer("resumed", queues, name, acts)


def on_schedule(verb: str, act: Callable[[ScheduleEntry], bool], options: Mapping[str, Any]) -> CommandResult:
    """Pause or resume a schedule."""
    if any(options.get(name) for name in ("queue", "job", "seconds", "reason")):
        raise CommandError("--schedule stands alone: a schedule is paused until somebody resumes it.")
    entry = schedules.get_entry(options["schedule"])
    acts = [audit.Act(verb, audit.ObjectKind.SCHEDULE, entry.id)] if act(entry) else []
    return CommandResult({f"{verb}d": {"schedule": entry.id}}, f"{entry.id}: {verb}d.", acts=acts)


def chosen(options: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Return the queues, and the job type or None for whole queues."""
    queue, name = options["queue"], options["job"]
    if not queue and not name:
        raise CommandError("Name a queue, a job type with --job, or a schedule with --schedule.")
    if name:
        registry.get(name)
    return ([queue] if queue else browse.queue_names()), name or None


def answer(done: str, queues: list[str], name: str | None, acts: list[audit.Act]) -> CommandResult:
    """Report the result in one line."""
    said = f"{name} in {', '.join(queues)}" if name else ", ".join(queues)
    return CommandResult({done: {"queues": queues, "job": name}}, f"{said}: {done}.", acts=acts)


def paused(options: Mapping[str, Any]) -> CommandResult:
    data = [payload(each) for each in pauses()]
    rows = [
        [
            each["kind"],
            f"{each['name']} in {each['queue']}" if each["kind"] == "job type" else each["name"],
            each["since"],
            each["until"],
            each["by"],
            "" if each["waiting"] is None else f"{each['waiting']}{' or more' if each['or_more'] else ''}",
            each["reason"],
        ]
        for each in data
    ]
    headings = ("", "paused", "since", "until", "by", "waiting", "reason")
    return CommandResult(data, table(headings, rows) if rows else "Nothing is paused.")


PAUSE = Subcommand("Pause a queue, a job type or a schedule; running jobs finish.", pause_arguments, pause)
RESUME = Subcommand("Resume a queue, a job type or a schedule.", what, resume)
PAUSED = Subcommand("List the paused queues, job types and schedules.", no_arguments, paused)
