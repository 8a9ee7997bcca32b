"""`outbox`: what is in the outbox; send it again, or delete it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from django_jobs.conf import get_settings
from django_jobs.formatting import counted
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, limit_of, table
from django_jobs.models import audit
from django_jobs.operations import kept

HEADINGS = ("id", "kind", "key", "name", "queue", "batch", "enqueued", "state", "reason")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["list", "send", "delete"],
        default="list",
        metavar="ACTION",
        help="list (default), send, or delete",
    )
    parser.add_argument("ids", nargs="*", type=int, metavar="ID", help="with send and delete: the ids of entries")
    parser.add_argument("--held", action="store_true", help="list only entries that wait for a decision")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of entries (default: 50)")
    parser.add_argument("--yes", action="store_true", help="with send: also entries that may run twice")


def outbox(options: Mapping[str, Any]) -> CommandResult:
    if (options["action"] == "list") == bool(options["ids"]):
        raise CommandError("Name the ids of entries after `send` and `delete`, and only there.")
    return show(options) if options["action"] == "list" else act(options)


def show(options: Mapping[str, Any]) -> CommandResult:
    rows, following = kept.page(options["held"] or None, limit=limit_of(options))
    found = [kept.entry_payload(row) for row in rows]
    lines = [
        [
            *(each[key] or "-" for key in ("id", "kind", "key", "name", "queue", "batch", "enqueued_at")),
            state_of(each),
            each["reason"] or "-",
        ]
        for each in found
    ]
    text = table(HEADINGS, lines) if lines else "No entry of this kind."
    return CommandResult(found, f"{text}\n\nThere are more." if following else text)


def state_of(entry: Mapping[str, Any]) -> str:
    """Return whether workers send an entry."""
    return ("held" if entry["held"] else "waiting") + (", may run twice" if entry["old"] else "")


def act(options: Mapping[str, Any]) -> CommandResult:
    """Send or delete entries, and report which are not there or may run twice."""
    word, ids = options["action"], options["ids"]
    done, old, missing = kept.send(ids, run_twice=options["yes"]) if word == "send" else kept.delete(ids)
    if len(missing) == len(set(ids)):
        raise CommandError(f"No such entry: {listed(missing)}. It was sent, or deleted.")
    said = [f"{word}: {counted(len(done), 'entry', 'entries')}."]
    if done and word == "send" and not get_settings().outbox:
        said.append("OUTBOX is off: nobody sends them until it is on.")
    if old:
        said.append(
            f"Older than IDEMPOTENCY, so they run twice if they were sent before: {listed(old)}. Find out whether they "
            "did run; then repeat with --yes."
        )
    said += [f"Not found: {listed(missing)}."] if missing else []
    data = {"done": [row.pk for row in done], "old": old, "missing": missing}
    changed = kept.waits_for_somebody(done) if word == "send" else done
    acts = [audit.outbox_act(word, changed)] if changed else []
    return CommandResult(data, " ".join(said), int(bool(old or missing)), acts)


def listed(ids: Any) -> str:
    return ", ".join(map(str, ids))


OUTBOX = Subcommand("List the entries of the outbox, send some again, or delete them.", arguments, outbox)
