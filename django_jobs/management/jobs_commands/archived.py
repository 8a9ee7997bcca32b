"""`archived`: finished jobs in the archive, newest first."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import archive
from django_jobs.conf import get_settings
from django_jobs.core.values import FINISHED
from django_jobs.management.jobs_commands.base import Answer, Subcommand, limit_of, table
from django_jobs.management.jobs_commands.looking import error_of
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import iso, job_payload
from django_jobs.serialization.record import name_of


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="only jobs of this type")
    parser.add_argument("--state", default="", choices=["", *sorted(FINISHED)], metavar="STATE", help="dead, …")
    parser.add_argument("--tag", default="", help="only jobs with this tag")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of jobs (default: 50)")


def archived(options: Mapping[str, Any]) -> Answer:
    limit = limit_of(options)
    if get_settings().archive is None:
        raise CommandError("There is no archive: set DJANGO_JOBS['ARCHIVE'].")
    names = [options["name"]] if options["name"] else []
    found, following = archive.page(names=names, status=options["state"], tag=options["tag"], limit=limit)
    shown = [masked(info) for info in found]
    rows = [[info.id, name_of(info.record), info.queue, info.state, iso(info.at), error_of(info)] for info in shown]
    text = table(["id", "name", "queue", "state", "ended", "error"], rows) if rows else "No job of this kind."
    return Answer([job_payload(info) for info in found], f"{text}\n\nThere are more." if following else text)


ARCHIVED = Subcommand("List finished jobs in the archive, newest first.", arguments, archived)
