"""`stats`, `list`, `show`, `why`, `workers`, `tags`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django_jobs import browse, operations
from django_jobs.core.values import JobInfo, QueueStats, State, WorkerInfo
from django_jobs.formatting import counted, plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand, limit_of, no_arguments, table
from django_jobs.management.jobs_commands.matching import add_filters, match_of
from django_jobs.operations import check_queue
from django_jobs.operations.matching import first
from django_jobs.samples.times import Quantiles
from django_jobs.samples.worker import totals_of
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import iso, job_payload
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store


def stats(options: Mapping[str, Any]) -> CommandResult:
    found, workers = operations.queues(), len(operations.workers())
    data: dict[str, Any] = browse.stats_payload(found, workers)
    rows: list[list[object]] = [stats_row(entry) for entry in found]
    rows.append(["(all)", *data["states"].values(), "", ""])
    totals = ", ".join(f"{event} {total}" for event, total in data["totals"].items())
    text = table(["queue", *(state.value for state in State), "latency", ""], rows)
    said = [line for entry in found for line in pause_lines(entry)]
    if unarchived := sum(entry.unarchived for entry in found):
        said.append(f"Waiting for the archive: {unarchived}.")
    return CommandResult(data, "\n".join([text, "", *said, f"Since counting began: {totals}.", f"Workers: {workers}."]))


def pause_lines(entry: QueueStats) -> list[str]:
    """Return which parts of this queue are paused, why, and until when."""
    pauses = [(entry.queue, entry.paused)] if entry.paused else []
    pauses += [(f"{name} in {entry.queue}", pause) for name, pause in sorted(entry.paused_types.items())]
    return [
        f"{plain(what, 150)} is paused"
        + (f" until {iso(pause.until)}" if pause.until else "")
        + (f": {plain(pause.reason, 200)}" if pause.reason else ".")
        for what, pause in pauses
    ]


def stats_row(entry: QueueStats) -> list[object]:
    counts = [entry.counts.get(state, 0) for state in State]
    return [entry.queue, *counts, f"{entry.latency / 1000:.1f} s", "paused" if entry.paused else ""]


def list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("state", choices=[state.value for state in State], metavar="STATE")
    add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of jobs (default: 50)")


def list_jobs(options: Mapping[str, Any]) -> CommandResult:
    state, limit = State(options["state"]), limit_of(options)
    match = match_of(options, state)
    found = first(state, match, limit)
    shown = [masked(info) for info in found.jobs]
    rows = [[info.id, name_of(info.record), info.queue, iso(info.at), error_of(info)] for info in shown]
    looked = f"Checked: {found.checked} of {counted(found.total, f'{state} job')}."
    said = [f"Shown: {len(shown)}.", "Looked up by id." if match.id else looked, *found.notes]
    text = table(["id", "name", "queue", "at", "error"], rows) if rows else ""
    return CommandResult([job_payload(info) for info in found.jobs], f"{text}\n{' '.join(said)}".strip())


def error_of(info: JobInfo) -> str:
    """Return the last error on one line."""
    if not info.attempts:
        return ""
    last = info.attempts[-1]
    return plain(f"{last.error_name or last.outcome}: {last.error}", 60)


def show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--queue", default="", help="the queue of the job, if you know it")


def show(options: Mapping[str, Any]) -> CommandResult:
    info, archived = operations.find(options["id"], options["queue"])
    payload = job_payload(info)
    payload["archived"] = archived
    log = payload.pop("log")
    lines = [
        f"{key + ':':<14} {plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 500)}"
        for key, value in payload.items()
        if value is not None
    ]
    if info.parked_at:
        lines.append(
            f"{'unknown since:':<14} {iso(info.parked_at)}: no worker that claimed it knows a job of that name."
        )
    for attempt in log:
        number = f"attempt {attempt['attempt']}{'' if attempt['counted'] else ' (not counted)'}: "
        lines.append(
            f"\n{number if attempt['attempt'] else ''}{attempt['outcome']} at {attempt['at']}{release_text(attempt)}"
        )
        lines.append(
            "\n".join(plain(line, 500) for line in attempt["traceback"].splitlines()) or plain(attempt["error"], 500)
        )
    return CommandResult(payload | {"log": log}, "\n".join(lines))


def release_text(attempt: Mapping[str, Any]) -> str:
    """Return by which release of the code an attempt ran, if that is known."""
    return f", release {plain(attempt['release'], 200)}" if attempt["release"] else ""


def why(options: Mapping[str, Any]) -> CommandResult:
    data = operations.why(options["id"], options["queue"]).payload()
    since = f" (since {data['since']})" if data["since"] else ""
    lines = [f"{data['state']}, {data['cause']}{since}: {plain(data['reason'], 1000)}"]
    lines += [f"{each['severity'].upper()}: {plain(each['says'], 500)}" for each in data["findings"]]
    return CommandResult(data, "\n".join(lines))


def times_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="only jobs of this name")
    parser.add_argument("--week", action="store_true", help="of the last seven days (default: of the last day)")


def times(options: Mapping[str, Any]) -> CommandResult:
    found = operations.run_times("week" if options["week"] else "day", name=options["name"])
    headings = ["name", "queue", "attempts", "wait p50", "p95", "max", "run p50", "p95", "max", "since"]
    rows = [
        [
            each.name or "(others)",
            each.queue,
            each.attempts,
            *_bounds(each.waiting),
            *_bounds(each.running),
            iso(each.since),
        ]
        for each in found
    ]
    data = [each.payload() for each in found]
    return CommandResult(data, table(headings, rows) if rows else "No attempt has ended in this time.")


def _bounds(part: Quantiles | None) -> list[str]:
    """Return quantiles as cells.  They are upper bounds; what is longer than the longest of them has none."""
    return [">2 h" if at is None else f"{at / 1000:g} s" for at in part] if part else ["-"] * 3


def workers(options: Mapping[str, Any]) -> CommandResult:
    found = operations.workers()
    data = [
        {key: value for key, value in each.info.items() if key not in ("at", "samples")}
        | {"totals": totals_of(each.info), "name": each.name, "seen_at": iso(each.seen_at)}
        for each in found
    ]
    rows = [worker_row(each) for each in found]
    text = (
        table(["name", "host", "pid", "queues", "size", "succeeded", "failed", "check-in"], rows)
        if rows
        else "No worker is running."
    )
    return CommandResult(data, text)


def worker_row(worker: WorkerInfo) -> list[object]:
    info = worker.info
    queues = ",".join(browse.shown_queues(info)) or str(info.get("state", ""))
    size = f"{info.get('processes', '?')}×{info.get('threads', '?')}"
    totals = totals_of(info) or {}
    ended = [totals.get(end, "not known") for end in ("succeeded", "failed")]
    return [worker.name, info.get("host", ""), info.get("pid", ""), queues, size, *ended, ago(worker.seen_at)]


def tags_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("state", choices=[state.value for state in browse.GROUPED], metavar="STATE")
    parser.add_argument("--queue", default="", help="only jobs of this queue")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of tags (default: 50)")


def tags(options: Mapping[str, Any]) -> CommandResult:
    limit, queue = limit_of(options), options["queue"]
    if queue:
        check_queue(queue)
    queues = [queue] if queue else browse.queue_names()
    data: dict[str, Any] = browse.tag_payload(State(options["state"]), queues, limit)
    rows = [
        [each["tag"], f"{each['jobs']}{' or more' if each['or_more'] else ''}", each["first_at"], each["last_at"]]
        for each in data["tags"]
    ]
    said = [table(["tag", "jobs", "first", "last"], rows) if rows else f"No {data['state']} job has a tag that counts."]
    if data["more_tags"]:
        said.append(f"Not shown: {counted(data['more_tags'], 'less frequent tag')}. Use --limit.")
    if data["uncounted_jobs"]:
        jobs = counted(data["uncounted_jobs"], "job")
        said.append(f"With tags that are not counted, because a queue has too many: {jobs}.")
    return CommandResult(data, "\n".join(said))


def ago(ms: int) -> str:
    """Return how long ago, by the store's clock, as pages do."""
    return f"{max(0, get_store().now() - ms) // 1000} s ago"


STATS = Subcommand("Show counts per state and queue, totals and workers.", no_arguments, stats)
LIST = Subcommand("List the jobs in one state.", list_arguments, list_jobs)
SHOW = Subcommand("Show everything about one job.", show_arguments, show)
WHY = Subcommand("Show why a job does not start.", show_arguments, why)
TIMES = Subcommand("How long the attempts of each job type waited and ran.", times_arguments, times)
WORKERS = Subcommand("List the running workers.", no_arguments, workers)
TAGS = Subcommand("Count dead jobs or retries by tag.", tags_arguments, tags)
