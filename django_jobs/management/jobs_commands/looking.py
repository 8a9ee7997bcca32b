"""`stats`, `list`, `show`, `why`, `workers`, `tags`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django_jobs import archive, browse
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.conf import get_settings
from django_jobs.core.values import FINISHED, JobInfo, QueueStats, State, WorkerInfo
from django_jobs.exceptions import JobNotFound
from django_jobs.formatting import counted
from django_jobs.management.jobs_commands.base import Answer, Subcommand, limit_of, no_arguments, plain, table
from django_jobs.management.jobs_commands.matching import add_filters, match_of
from django_jobs.operations import check_queue
from django_jobs.samples.worker import totals_of
from django_jobs.serialization.masking import masked
from django_jobs.serialization.payloads import iso, job_payload
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store

TOTALS = ("enqueued", "succeeded", "failed", "retried", "dead")
#: Jobs that `list` reads at a time.
LOOKED_AT = 200


def all_stats() -> list[QueueStats]:
    """Return the numbers of every queue, read in batches of queues."""
    names = browse.queue_names()
    return [
        s for start in range(0, len(names), LIVE_QUEUES) for s in browse.queue_stats(names[start : start + LIVE_QUEUES])
    ]


def stats(options: Mapping[str, Any]) -> Answer:
    found, workers = all_stats(), len(get_store().workers())
    states = {state.value: sum(entry.counts.get(state, 0) for entry in found) for state in State}
    data = {
        "states": states,
        "queues": {
            entry.queue: {state.value: entry.counts.get(state, 0) for state in State}
            | {"latency": entry.latency / 1000, "paused": entry.paused is not None, "unarchived": entry.unarchived}
            for entry in found
        },
        "totals": {event: sum(entry.totals.get(event, 0) for entry in found) for event in TOTALS},
        "workers": workers,
    }
    rows: list[list[object]] = [stats_row(entry) for entry in found]
    rows.append(["(all)", *states.values(), "", ""])
    totals = ", ".join(f"{event} {total}" for event, total in data["totals"].items())  # type: ignore[attr-defined]
    text = table(["queue", *(state.value for state in State), "latency", ""], rows)
    said = [line for entry in found for line in pause_lines(entry)]
    if unarchived := sum(entry.unarchived for entry in found):
        said.append(f"Waiting for the archive: {unarchived}.")
    return Answer(data, "\n".join([text, "", *said, f"Since counting began: {totals}.", f"Workers: {workers}."]))


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
    """Return a queue as one line."""
    counts = [entry.counts.get(state, 0) for state in State]
    return [entry.queue, *counts, f"{entry.latency / 1000:.1f} s", "paused" if entry.paused else ""]


def list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("state", choices=[state.value for state in State], metavar="STATE")
    add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of jobs (default: 50)")


def list_jobs(options: Mapping[str, Any]) -> Answer:
    state, limit = State(options["state"]), limit_of(options)
    match = match_of(options, state)
    found, said = listed(state, match, limit)
    shown = [masked(info) for info in found]
    rows = [[info.id, name_of(info.record), info.queue, iso(info.at) or "", error_of(info)] for info in shown]
    text = table(["id", "name", "queue", "at", "error"], rows) if rows else ""
    return Answer([job_payload(info) for info in found], f"{text}\n{said}".strip())


def listed(state: State, match: browse.Match, limit: int) -> tuple[list[JobInfo], str]:
    """Return up to `limit` jobs, and a sentence that says how many there are."""
    queues = [match.queue] if match.queue else browse.queue_names()
    has_groups = state in browse.GROUPED and (match.name or match.tag)
    groups = browse.matching_groups(state, match, queues) if has_groups else None
    total = (
        get_store().count_within(queues, state, match.span) if match.span else browse.job_counts(queues).counts[state]
    )
    if groups is not None and match.tag:
        total = sum(group.jobs for group in groups)
    jobs: list[JobInfo] = []
    checked, after = 0, None
    while len(jobs) < limit:
        some, after = get_store().listed(
            queues, state, LOOKED_AT, after, groups=groups, reverse=state in FINISHED, span=match.span
        )  # fmt: skip
        for info in some:
            if len(jobs) < limit:
                checked += 1
                jobs += [info] if match.accepts(info) else []
        if after is None:
            break
    return jobs, f"Shown: {len(jobs)}. Checked: {checked} of {counted(max(total, checked), f'{state} job')}."


def error_of(info: JobInfo) -> str:
    """Return the last error on one line."""
    if not info.attempts:
        return ""
    last = info.attempts[-1]
    return plain(f"{last.error_name or last.outcome}: {last.error}", 60)


def show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--queue", default="", help="the queue of the job, if you know it")


def show(options: Mapping[str, Any]) -> Answer:
    names = [options["queue"]] if options["queue"] else browse.queue_names()
    info = browse.find(options["id"], names)
    archived = info is None and get_settings().archive is not None
    if archived:
        info = archive.find(options["id"], options["queue"] or None)
    if info is None:
        raise JobNotFound(f"There is no job {options['id']!r}. It may have left the history.")
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
        lines.append(f"\n{number if attempt['attempt'] else ''}{attempt['outcome']} at {attempt['at']}")
        lines.append(
            "\n".join(plain(line, 500) for line in attempt["traceback"].splitlines()) or plain(attempt["error"], 500)
        )
    return Answer(payload | {"log": log}, "\n".join(lines))


def why(options: Mapping[str, Any]) -> Answer:
    names = [options["queue"]] if options["queue"] else browse.queue_names()
    info = browse.find(options["id"], names)
    if info is None:
        raise JobNotFound(f"No job {options['id']!r} is known; it may have left the history.")
    data = browse.reason_payload(*browse.why(info))
    since = f" (since {data['since']})" if data["since"] else ""
    return Answer(data, f"{data['state']}, {data['cause']}{since}: {plain(data['reason'], 1000)}")


def workers(options: Mapping[str, Any]) -> Answer:
    found = get_store().workers()
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
    return Answer(data, text)


def worker_row(worker: WorkerInfo) -> list[object]:
    """Return a worker as one line."""
    info = worker.info
    named = info.get("queues")
    queues = ",".join(map(str, named)) if isinstance(named, list) else str(info.get("state", ""))
    size = f"{info.get('processes', '?')}×{info.get('threads', '?')}"
    totals = totals_of(info) or {}
    ended = [totals.get(end, "not known") for end in ("succeeded", "failed")]
    return [worker.name, info.get("host", ""), info.get("pid", ""), queues, size, *ended, ago(worker.seen_at)]


def tags_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("state", choices=[state.value for state in browse.GROUPED], metavar="STATE")
    parser.add_argument("--queue", default="", help="only jobs of this queue")
    parser.add_argument("--limit", type=int, default=50, help="the maximum number of tags (default: 50)")


def tags(options: Mapping[str, Any]) -> Answer:
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
    return Answer(data, "\n".join(said))


def ago(ms: int) -> str:
    """Return how long ago, by this machine's clock."""
    return f"{max(0.0, datetime.now(UTC).timestamp() - ms / 1000):.0f} s ago"


STATS = Subcommand("Show counts per state and queue, totals and workers.", no_arguments, stats)
LIST = Subcommand("List the jobs in one state.", list_arguments, list_jobs)
SHOW = Subcommand("Show everything about one job.", show_arguments, show)
WHY = Subcommand("Show why a job does not start.", show_arguments, why)
WORKERS = Subcommand("List the running workers.", no_arguments, workers)
TAGS = Subcommand("Count dead jobs or retries by tag.", tags_arguments, tags)
