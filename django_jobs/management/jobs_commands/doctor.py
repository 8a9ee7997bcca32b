"""`doctor`: finds what could lose a job, run it twice, or keep it from running."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from django.core import checks
from django.utils.translation import override

from django_jobs import alarms, browse
from django_jobs.alarms import Finding, Server, look_at_server
from django_jobs.core import registry
from django_jobs.core.values import State
from django_jobs.events.announce import announce_misplaced
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import StoreError
from django_jobs.management.jobs_commands.base import Answer, Subcommand, plain
from django_jobs.management.jobs_commands.strangers import strangers
from django_jobs.serialization.payloads import iso
from django_jobs.serialization.record import name_of
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import MAX_BATCH

#: Maximum jobs checked per queue and state.
LOOK = 500
#: Maximum orphans that are named.
NAMED = 5
#: Repair stops after this many fruitless steps in a row, even if something is still wrong: more would not help.
FRUITLESS = 20
#: Of the alarms that are errors, what workers mend, and what only waits for a worker that knows the job or serves the
#: queue.
BY_WORKERS = frozenset({"full", "unknown", "no_worker"})
#: Descriptions of the kinds of `Store.faults`.
ORPHANS = {
    "wrong_type": "keys hold data of the wrong type, and block work",
    "claim_without_lease": "jobs run on a worker that has no lease",
    "lock_without_job": "unique locks belong to jobs that neither wait nor run",
    "entry_without_job": "logs, counts or results remain of jobs that do not exist",
    "slot_without_claim": "slots of a concurrency limit are held by jobs that do not run",
    "waiter_without_limit": "blocked jobs are recorded only in part",
    "job_without_place": "jobs are in no state, or in several",
    "place_without_job": "entries name jobs that do not exist",
    "failed_without_index": "failed jobs are missing from the groups of errors",
    "index_without_failed": "groups of errors name jobs that have not failed",
}
#: Of these, what an update leaves behind: a worker of an older version keeps no groups of errors.  No job is affected.
HARMLESS = frozenset({"failed_without_index", "index_without_failed"})


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--repair", action="store_true", help="also repair inconsistencies now; workers repair them within minutes"
    )
    parser.add_argument(
        "--before-start", action="store_true", help="what running workers mend is a warning: for the start of a worker"
    )


def doctor(options: Mapping[str, Any]) -> Answer:
    findings = list(settings_findings())
    try:
        server = look_at_server()
    except StoreError as error:
        findings.append(Finding("error", "store", str(error)))
    else:
        if options["repair"]:
            findings += guarded(repairs)
        for look in (server_findings, orphans, workers, alarm_findings, names, workflows):
            findings += guarded(partial(look, server))
    if options["before_start"]:
        findings = [each._replace(level="warning") if each.by_workers else each for each in findings]
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    lines = [f"{finding.level.upper():<8} {finding.subject}: {finding.says}" for finding in findings]
    lines.append(f"Errors: {errors}, warnings: {warnings}.")
    told = [{"level": each.level, "subject": each.subject, "says": each.says} for each in findings]
    data = {"errors": errors, "warnings": warnings, "findings": told}
    return Answer(data, "\n".join(lines), 1 if errors else 0)


def guarded(look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Run one check.  A store error becomes a finding, so that the other checks still run."""
    try:
        return list(look())
    except StoreError as error:
        return [Finding("error", "store", str(error))]


def settings_findings() -> Iterator[Finding]:
    """Report the system checks of the settings, including those for deployment."""
    for message in checks.run_checks(tags=["django_jobs"], include_deployment_checks=True):
        level = "error" if message.level >= checks.ERROR else "warning"
        yield Finding(level, f"settings {message.id}", f"{message.msg} {message.hint or ''}".strip())


def server_findings(server: Server) -> Iterator[Finding]:
    """Report the server, its persistence and its clock; faults that the overview shows, too, are alarms."""
    with override("en"):
        yield from alarms.server_findings(server)


def workers(server: Server) -> Iterator[Finding]:
    """Say how many workers run, and which seem to be of another project.  A queue without any of them is an alarm."""
    if found := get_store().workers():
        yield Finding("ok", "workers", f"{len(found)} running.")
        for said in islice(strangers(found), NAMED):
            yield Finding("warning", "other project", said)
    else:
        yield Finding("warning", "workers", "No worker is running. Start `manage.py runworkers`.")


def alarm_findings(server: Server) -> Iterator[Finding]:
    """Report every alarm that the overview shows, and what could not be checked.

    Only what can lose or double jobs, or what keeps them from ever running, is an error: a release that runs `doctor`
    between two versions must not stop because no worker runs at that moment."""
    report = alarms.check(alarms.measure(server=server.about))
    with override("en"):
        for alarm in report.alarms:
            since = f" Since {iso(alarm.since)}." if alarm.since else ""
            reason = f" ({plain(alarm.reason, 200)})" if alarm.reason else ""
            found = alarms.alarm_finding(alarm)
            yield found._replace(says=found.says + reason + since, by_workers=alarm.kind in BY_WORKERS)
        for text in report.unchecked_texts:
            yield Finding("warning", "not checked", text)


def names(server: Server) -> Iterator[Finding]:
    """Check whether this project registers the first waiting jobs of each queue.  Names no worker knows are alarms."""
    unknown: dict[tuple[str, str], int] = {}
    for queue in browse.job_counts().queues:
        for state in (State.QUEUED, State.SCHEDULED, State.RETRY, State.BLOCKED):
            for info in get_store().page(queue, state, 0, LOOK):
                name = name_of(info.record)
                if not known(name):
                    unknown[queue, name] = unknown.get((queue, name), 0) + 1
    for (queue, name), number in unknown.items():
        said = f"Queue {queue!r} has jobs named {name[:200]!r} ({number}). This project has no job of that name."
        remedy = "Deploy the code that has it, add the name to aliases=[…] of a renamed job, or delete the jobs."
        yield Finding("warning", "names", f"{said} {remedy}")
    if not unknown:
        yield Finding("ok", "names", f"All waiting jobs are registered (job types: {len(registry.names())}).")


def known(name: str) -> bool:
    """Return whether a job with that name is registered."""
    return registry.find(name) is not None


def orphans(server: Server) -> Iterator[Finding]:
    """Check the store for what no transition should leave."""
    sound = True
    for queue in browse.queue_names():
        faults = get_store().faults(queue)
        for kind, which in faults.found.items():
            some = ", ".join(plain(name, 100) for name in which[:NAMED]) + (", …" if len(which) > NAMED else "")
            said = f"Queue {queue!r}: {ORPHANS[kind]} ({len(which)}): {some}."
            remedy = "Workers repair this within minutes; `jobs doctor --repair` does it now."
            level = "warning" if kind in HARMLESS else "error"
            yield Finding(level, "orphans", f"{said} {remedy}", by_workers=True)
        if "wrong_type" in faults.found:
            yield Finding("warning", "orphans", f"Queue {queue!r}: the rest can be checked after that repair.")
        elif not faults.whole:
            yield Finding("ok", "orphans", f"Queue {queue!r} is long: only part of it was checked.")
        sound = sound and not faults.found
    if sound:
        yield Finding("ok", "orphans", "None were found.")


def workflows(server: Server) -> Iterator[Finding]:
    """Name workflows and batches that do not go on by themselves."""
    found = list(browse.that_cannot_go_on())
    for info, why in found[:NAMED]:
        name = f"{info.kind.capitalize()} {plain(info.name, 100)!r} ({info.id})"
        if why == "open":
            said = f"{name} was not closed, and nothing happens in it. Its `with` block raised, or its process died."
            yield Finding("warning", "workflows", f"{said} Enter it again, or cancel it: get_workflow(id).cancel().")
        else:
            ends = ", ".join(f"{number} {state}" for state, number in info.stopped_by.items())
            remedy = "Retry these steps, with get_workflow(id).retry() all of them."
            yield Finding("warning", "workflows", f"{name} is stopped by the ends of steps ({ends}). {remedy}")
    if len(found) > NAMED:
        yield Finding("warning", "workflows", f"{len(found) - NAMED} more do not go on.")
    if not found:
        yield Finding("ok", "workflows", "None is stopped.")


def repairs() -> Iterator[Finding]:
    """Repair every queue until nothing is wrong."""
    store = get_store()
    for queue in browse.queue_names():
        done: Counter[str] = Counter()
        buried: list[tuple[str, bytes]] = []
        fruitless = 0
        for _ in range(MAX_BATCH):
            step = +Counter(store.reconcile(queue, buried=buried))
            done += step
            fruitless = 0 if step else fruitless + 1
            if fruitless and (fruitless == FRUITLESS or not store.faults(queue).found):
                break
        announce_misplaced(queue, buried, deliver_here)
        for kind, number in done.items():
            yield Finding("warning", "repaired", f"{kind.replace('_', ' ')}: {number} in queue {queue!r}.")


DOCTOR = Subcommand("Find what could lose a job, run it twice, or keep it from running.", arguments, doctor)
