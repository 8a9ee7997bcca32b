"""`history`: who did what."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_jobs.management.jobs_commands.base import Answer, Subcommand, limit_of, plain, table
from django_jobs.models.audit import AuditEntry, Source
from django_jobs.operations import word_of

#: Details that the text leaves out: ids, which `--json` has, and arguments, which belong on no screen by chance.
_LONG = frozenset({"ids", "before", "after"})


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--user", default="", help="only what this user, token or user of a shell did")
    parser.add_argument("--source", default="", choices=["", *Source.values], metavar="SOURCE", help="admin, http, …")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of entries (default: 50)")


def show(options: Mapping[str, Any]) -> Answer:
    limit = limit_of(options)
    entries = AuditEntry.objects.all()
    if options["user"]:
        entries = entries.filter(actor=options["user"])
    if options["source"]:
        entries = entries.filter(source=options["source"])
    found = list(entries[:limit])
    data = [
        {
            "at": entry.at.isoformat(),
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
        (f"{entry.at:%Y-%m-%d %H:%M:%S}", entry.actor, entry.source, word_of(entry.verb), entry.kind, entry.subject,
         plain(" ".join(f"{key}={_text(value)}" for key, value in entry.details.items() if key not in _LONG), 120))
        for entry in found
    ]  # fmt: skip
    headings = ("time", "who", "by", "action", "on", "", "details")
    return Answer(data, table(headings, rows) if rows else "Nobody has changed anything yet.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


HISTORY = Subcommand("List what was done in the admin, over HTTP and with this command.", arguments, show)
