"""`health`, `findings`: whether workers do their work, and what is wrong; exit 0 or 1, for probes and monitoring.

And `errors`: the errors of jobs, and what is decided about them."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.utils.translation import override

from django_jobs.conf import get_settings
from django_jobs.core.values import QueueStats
from django_jobs.exceptions import JobsError
from django_jobs.formatting import counted, plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, no_arguments, refuse_unused, table
from django_jobs.models import audit
from django_jobs.operations import check_queue, diagnosis, error_inbox
from django_jobs.operations.diagnosis import acknowledged_text, problems_of, told, too_slow
from django_jobs.remote import pull_queues
from django_jobs.serialization.checked import list_of
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store

#: What can be decided about an error → its state.
ERROR_ACTS: Mapping[str, error_inbox.State] = {"resolve": "resolved", "ignore": "ignored", "reopen": "new"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--worker", default="", metavar="NAME", help="only this worker, and only its queues")
    parser.add_argument(
        "--max-latency",
        type=_seconds,
        metavar="S",
        help="unhealthy also if the oldest job has waited longer, in seconds",
    )


def health(options: Mapping[str, Any]) -> CommandResult:
    """Exit 1 if no worker runs, if one does not do its work, or if the store cannot be read."""
    try:
        found = _problems(options["worker"], options["max_latency"])
    except (JobsError, ImproperlyConfigured) as error:
        found = [str(error)]
    text = "\n".join(plain(each, 500) for each in found) or "Healthy."
    return CommandResult({"healthy": not found, "problems": found}, text, int(bool(found)))


def _problems(name: str, max_latency: float | None) -> list[str]:
    store = get_store()
    workers = [worker for worker in store.workers() if name in ("", worker.name)]
    if not workers:
        return [f"No worker named {name} runs." if name else "No worker runs."]
    foreign, now = pull_queues(), store.now()
    known = get_settings().queues
    served = sorted({queue for worker in workers for queue in list_of(worker.info.get("queues")) if queue in known})
    queues: list[QueueStats] = [stats for stats in store.stats(served) if stats.queue not in foreign]
    found = [f"{worker.name}: {each}" for worker in workers for each in problems_of(worker, queues, now)]
    return found if max_latency is None else [*found, *too_slow(queues, max_latency)]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def found(options: Mapping[str, Any]) -> CommandResult:
    """Print every finding, worst first; exit 1 if one of them is an error."""
    report = diagnosis.check()
    return CommandResult(report.as_json(), _text(report), int(_has_error(report)))


def active_alarms(options: Mapping[str, Any]) -> CommandResult:
    """Print the same; the JSON has the older names of the findings."""
    report = diagnosis.check()
    return CommandResult(report.as_alarms(), _text(report), int(_has_error(report)))


def _has_error(report: diagnosis.Report) -> bool:
    return any(each.severity is diagnosis.Severity.ERROR for each in report.findings)


def _text(report: diagnosis.Report) -> str:
    lines = []
    with override("en"):
        for each, left in report.lines():
            since = f" Since {iso(each.since)}." if each.since else ""
            act = f" {each.act}" if each.act else ""
            lines.append(f"{each.severity.upper():<8} {plain(told(each), 500)}{since}{act}")
            if left:
                lines.append(f"{'':<8} And {left} more like this: --json lists all.")
        lines += [f"{'UNKNOWN':<8} {text}" for text in report.unchecked_texts]
        lines += [f"{'':<8} {told(each)} {acknowledged_text(known)}" for each, known in report.acknowledged]
    return "\n".join(lines) or "No problems: everything was checked, and nothing was found."


def acknowledge_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="the kind of finding, as `findings --json` prints it")
    parser.add_argument("subject", nargs="?", default="", metavar="SUBJECT", help="only that of this subject")
    parser.add_argument("--for", dest="hours", type=float, default=24.0, metavar="HOURS", help="default: 24")
    parser.add_argument("--reason", default="")
    parser.add_argument("--undo", action="store_true", help="let it count again")


def acknowledge(options: Mapping[str, Any]) -> CommandResult:
    """Acknowledge findings for a time, or let them count again."""
    report, undo = diagnosis.check(), options["undo"]
    offered = [each for each, _ in report.acknowledged] if undo else list(report.findings)
    found = [each for each in offered if each.kind == options["kind"] and options["subject"] in ("", each.subject)]
    if not found:
        what = "No acknowledged finding" if undo else "No finding"
        raise CommandError(f"{what} has the kind {options['kind']!r} and this subject: see `jobs findings`.")
    if undo:
        diagnosis.withdraw([each.key for each in found])
    elif not options["reason"]:
        raise CommandError("Give a reason for the others: --reason TEXT.")
    else:
        reason = options["reason"]
        try:
            until = report.at + int(options["hours"] * 3_600_000)
            diagnosis.acknowledge(found, until, by=audit.shell_user(), reason=reason)
        except (ValueError, OverflowError) as error:
            raise CommandError(f"--for is {options['hours']}: {error}") from error
    verb, details = ("withdraw", {}) if undo else ("acknowledge", {"reason": reason, "until": until})
    acts = [audit.Act(verb, audit.ObjectKind.FINDING, f"{each.kind} {each.subject}"[:200], details) for each in found]
    with override("en"):
        lines = [f"{'Counts again' if undo else 'Acknowledged'}: {plain(told(each), 500)}" for each in found]
        data = [{"kind": each.kind, "subject": each.subject, "says": told(each)} for each in found]
    return CommandResult(data, "\n".join(lines), acts=acts)


def errors_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("act", nargs="?", choices=["list", *ERROR_ACTS, "note"], default="list", metavar="ACT")
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="as the list shows it")
    parser.add_argument("text", nargs="?", default=None, metavar="TEXT", help="the note; with the other acts, too")
    parser.add_argument("--queue", action="append", help="only errors of this queue; may be repeated")
    parser.add_argument("--state", choices=error_inbox.STATES, help="only new, resolved or ignored errors")


def job_errors(options: Mapping[str, Any]) -> CommandResult:
    """List the errors, or decide about one."""
    act, id, text = options["act"], options["id"], options["text"]
    refuse_unused(options, f"errors {act}", {"ID": "id"} if act == "list" else {"--queue": "queue", "--state": "state"})
    if act != "list":
        error = error_inbox.find(id)
        if error is None:
            raise CommandError(f"No error {id!r:.50} is remembered: see `jobs errors`.")
        if act == "note" and text is None:
            raise CommandError('Write the note behind the id; "" removes it.')
        try:
            decided = error_inbox.decide(error, by=audit.shell_user(), state=ERROR_ACTS.get(act), note=text)
        except ValueError as wrong:
            raise CommandError(str(wrong)) from wrong
        done = [audit.Act(act, audit.ObjectKind.ERROR, error.subject, {"reason": text})] if decided is not error else []
        return CommandResult(decided.as_json(), f"{plain(decided.subject, 200)}: {decided.state}", acts=done)
    for queue in options["queue"] or ():
        check_queue(queue)
    inbox = error_inbox.inbox(options["queue"])
    found = [each for each in inbox.errors if options["state"] in (None, each.state)]
    rows = [error_row(each) for each in found]
    columns = ["id", "state", "count", "first seen", "last seen", "release", "type", "frame"]
    lines = [table(columns, rows) if rows else "No error is remembered."]
    if inbox.forgotten:
        lines.append(f"Forgotten, because their queues had too many: {counted(inbox.forgotten, 'error')}.")
    if inbox.left_out:
        lines.append(
            f"Not read, because there are too many errors: {counted(len(inbox.left_out), 'queue')}. Use --queue."
        )
    return CommandResult([each.as_json() for each in found], "\n".join(lines))


def error_row(error: error_inbox.Error) -> list[object]:
    times = [iso(error.seen.first), iso(error.seen.last)]
    where = error.place or next(iter(error.messages), "")
    return [error.id, error.state, error.seen.number, *times, error.last_release, error.type, where]


ERRORS = Subcommand(
    "List the errors of jobs, also of jobs that are gone; resolve, ignore or note one.", errors_arguments, job_errors
)
HEALTH = Subcommand("Whether workers do their work: exit 0, or 1 and the reasons.", arguments, health)
FINDINGS = Subcommand("What is wrong now, as on the overview of the admin.", no_arguments, found)
ACKNOWLEDGE = Subcommand("Acknowledge a finding for a time.", acknowledge_arguments, acknowledge)
ALARMS = Subcommand(
    "The same as `findings`, in the older JSON; it goes in the next release.", no_arguments, active_alarms
)
