"""`history`, `archived`: who did what, and which jobs have ended."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs import archive
from django_jobs.browse import Match
from django_jobs.conf import get_settings
from django_jobs.core.values import FINISHED
from django_jobs.formatting import counted, plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, iso_of, limit_of, table
from django_jobs.management.jobs_commands.looking import error_of
from django_jobs.management.jobs_commands.matching import QUERY
from django_jobs.models.audit import Source
from django_jobs.operations import history, word_of
from django_jobs.operations.archived import archived as archived_jobs
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import iso, job_payload
from django_jobs.serialization.record import name_of

#: Details that the text leaves out: ids, which `--json` has, and arguments, which belong on no screen by chance.
_LONG = frozenset({"ids", "before", "after"})


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--user", default="", help="only what this user, token or user of a shell did")
    parser.add_argument("--source", default="", choices=["", *Source.values], metavar="SOURCE", help="admin, http, …")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of entries (default: 50)")


def show(options: Mapping[str, Any]) -> CommandResult:
    limit = limit_of(options)
    found = history(user=options["user"], source=options["source"], limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    data = [
        {
            "at": iso_of(entry.at),
            "user": entry.actor,
            "source": entry.source,
            "verb": word_of(entry.verb),
            "kind": entry.kind,
            "subject": entry.subject,
            "details": entry.details,
        }
        for entry in found
    ]
    rows = [
        (iso_of(entry.at, "seconds"), entry.actor, entry.source, word_of(entry.verb), entry.kind, entry.subject,
         plain(" ".join(f"{key}={_text(value)}" for key, value in entry.details.items() if key not in _LONG), 120))
        for entry in found
    ]  # fmt: skip
    headings = ("time", "who", "by", "action", "on", "", "details")
    text = table(headings, rows) if rows else "Nobody has changed anything yet."
    return CommandResult(data, f"{text}\n\nThere are more. Use --limit." if more else text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


HISTORY = Subcommand("List what was done in the admin, over HTTP and with this command.", arguments, show)


def archive_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="only jobs of this type")
    parser.add_argument(
        "--state", default="", choices=["", *sorted(map(str, FINISHED))], metavar="STATE", help="dead, …"
    )
    parser.add_argument("--tag", default="", help="only jobs with this tag")
    parser.add_argument("--query", default="", help=QUERY)
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of jobs (default: 50)")


def archived(options: Mapping[str, Any]) -> CommandResult:
    limit = limit_of(options)
    if get_settings().archive is None:
        raise CommandError("There is no archive: set DJANGO_JOBS['ARCHIVE'].")
    names = [options["name"]] if options["name"] else []
    if options["query"]:
        match = Match(tag=options["tag"]).asked(options["query"], archived=True)
        found, following, checked, notes = archived_jobs(match, names=names, status=options["state"], limit=limit)
        said = [f"Shown: {len(found)}. Checked: {counted(checked, 'archived job')}.", *notes.sentences()]
        if following:
            ended = iso(following.ms)
            said.append(f"Jobs that ended before {ended} were not checked: add before:{ended} to go on.")
    else:
        found, following = archive.page(names=names, status=options["state"], tag=options["tag"], limit=limit)
        said = ["There are more."] if following else []
    shown = [masked(info) for info in found]
    rows = [[info.id, name_of(info.record), info.queue, info.state, iso(info.at), error_of(info)] for info in shown]
    text = table(["id", "name", "queue", "state", "ended", "error"], rows) if rows else "No job of this kind."
    return CommandResult([job_payload(info) for info in found], f"{text}\n\n{' '.join(said)}".strip())


ARCHIVED = Subcommand("List finished jobs in the archive, newest first.", archive_arguments, archived)
