"""`enqueue`, `edit`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import operations
from django_jobs.conf import get_settings
from django_jobs.core.options.declared import MAX_PRIORITY
from django_jobs.core.values import Added
from django_jobs.enqueueing.handle import DEFERRED, JobHandle
from django_jobs.enqueueing.submit import enqueue_by_name
from django_jobs.exceptions import JobMoved
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand
from django_jobs.models import audit
from django_jobs.serialization.arguments import dump


def add_call(parser: ArgumentParser, **more: Any) -> None:
    what = "a list of arguments, or an object of keyword arguments"
    parser.add_argument("--args", dest="call", metavar="JSON", help=what, **more)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    add_call(parser, default="[]")
    parser.add_argument("--queue", default=None)
    parser.add_argument("--priority", type=int, default=None)
    parser.add_argument(
        "--tag", dest="tags", action="append", default=[], metavar="TAG", help="a tag of the job; may be repeated"
    )
    parser.add_argument("--id", dest="job_id", default=None, help="the id of the job; an id is enqueued only once")


def edit_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    add_call(parser, required=True)
    parser.add_argument("--queue", default="", help="the queue of the job, if you know it")


def enqueue(options: Mapping[str, Any]) -> CommandResult:
    args, kwargs = read_call(options["call"])
    if options["priority"] is not None and abs(options["priority"]) > MAX_PRIORITY:
        raise CommandError(f"--priority is {options['priority']}: use a number from -{MAX_PRIORITY} to {MAX_PRIORITY}.")
    chosen = {key: options[key] for key in ("queue", "priority", "job_id", "tags")}
    # Without the outbox, the command says what the store answers, wherever it is called.
    on_commit = bool(get_settings().outbox)
    handle = enqueue_by_name(options["name"], args, kwargs, on_commit=on_commit, **chosen)
    is_new = handle.added in (None, Added.ADDED)
    data = {"id": handle.id, "name": handle.name, "queue": handle.queue, "added": is_new}
    if handle.state == DEFERRED:
        return CommandResult(data, f"{handle.name} will be enqueued as job {handle.id} after the commit.")
    if is_new:
        return CommandResult(data, f"{handle.name} was enqueued as job {handle.id} in queue {handle.queue}.")
    if handle.added is Added.EXISTS:
        return CommandResult(data, f"Job {handle.id} already exists in queue {handle.queue}. Nothing was enqueued.")
    return CommandResult(data, equal_waits(handle))


def equal_waits(handle: JobHandle) -> str:
    """Say what became of a call whose unique key a waiting job has."""
    what = "It has the new arguments now." if handle.added is Added.REPLACED else "Nothing was enqueued."
    return f"An equal {handle.name} job is already waiting in queue {handle.queue}. {what}"


def edit(options: Mapping[str, Any]) -> CommandResult:
    info, is_archived = operations.find(options["id"], options["queue"])
    if is_archived:
        raise JobMoved(f"Job {info.id!r} cannot be edited: it is {info.state}, and in the archive.")
    call = json.loads(dump(*read_call(options["call"])))
    changed = operations.edit(info.queue, info.id, *call)
    facts = {"ids": [[info.queue, info.id]], **audit.edit_details(info, call)}
    acts = [audit.Act("edit", audit.ObjectKind.JOB, info.queue, facts)] if changed else []
    said = f"Job {info.id} has new arguments." if changed else f"Job {info.id} already had these arguments."
    return CommandResult({"id": info.id, "queue": info.queue, "changed": changed}, said, acts=acts)


def read_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments given by --args."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--args is {text!r:.100}, which is not JSON: {error}") from error
    if not isinstance(given, list | dict):
        raise CommandError(f"--args is {text!r:.100}: write a JSON list of arguments, such as [7], or an object.")
    return (given, {}) if isinstance(given, list) else ([], given)


ENQUEUE = Subcommand("Enqueue a registered job.", arguments, enqueue)
EDIT = Subcommand("Change the arguments of a waiting job.", edit_arguments, edit)
