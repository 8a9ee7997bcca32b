"""`enqueue`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs.enqueue import enqueue_by_name
from django_jobs.management.jobs_commands.base import Answer, Subcommand


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--args", dest="call", default="[]", metavar="JSON", help="a list of arguments, or an object of keyword ones"
    )
    parser.add_argument("--queue", default=None)
    parser.add_argument("--priority", type=int, default=None)
    parser.add_argument("--id", dest="job_id", default=None, help="the id; the same id is enqueued once")


def enqueue(options: Mapping[str, Any]) -> Answer:
    try:
        given = json.loads(options["call"])
    except ValueError as error:
        raise CommandError(f"--args is {options['call']}, which is not JSON: {error}") from error
    if not isinstance(given, list | dict):
        raise CommandError(f"--args is {options['call']}: write a JSON list of arguments, such as [7], or an object.")
    args, kwargs = (given, {}) if isinstance(given, list) else ([], given)
    chosen = {key: options[key] for key in ("queue", "priority", "job_id")}
    handle = enqueue_by_name(options["name"], args, kwargs, on_commit=False, **chosen)
    data = {"id": handle.id, "name": handle.name, "queue": handle.queue}
    return Answer(data, f"{handle.name} was enqueued as job {handle.id} in queue {handle.queue}.")


ENQUEUE = Subcommand("Enqueue a registered job.", arguments, enqueue)
