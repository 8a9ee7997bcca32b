"""`doctor`: finds what could lose a job, run it twice, or keep it from running."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from django.core import checks
from django.utils.translation import override

from django_jobs import browse
from django_jobs.core import registry
from django_jobs.core.values import State
from django_jobs.events.announce import announce_misplaced
from django_jobs.events.receivers import deliver_here
from django_jobs.exceptions import StoreError
from django_jobs.formatting import plain
from django_jobs.management.jobs_commands.base import CommandResult, Subcommand
from django_jobs.management.jobs_commands.strangers import strangers
from django_jobs.operations import bulk, diagnosis, error_inbox, releases, searching
from django_jobs.operations.diagnosis import CheckLine, ServerFacts, acknowledging, facts, look_at_server
from django_jobs.samples.log import KEPT
from django_jobs.schedules.gaps import DOCUMENT as GAPS
from django_jobs.schedules.state import DOCUMENT as SCHEDULES
from django_jobs.schedules.state import read_state
from django_jobs.serialization.checked import notice, noticing
from django_jobs.serialization.payloads import iso
from django_jobs.serialization.record import job_in, name_of
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import MAX_BATCH

#: Maximum jobs checked per queue and state.
LOOK = 500
#: Maximum orphans that are named.
NAMED = 5
#: The documents of the fleet.  What is wrong inside of them is found where they are read.
DOCUMENTS = (
    bulk.DOCUMENT, searching.DOCUMENT, error_inbox.DOCUMENT, releases.DOCUMENT, acknowledging.DOCUMENT, facts.NOTIFIERS,
    SCHEDULES, GAPS, browse.ASKED, "snapshot",
)  # fmt: skip
#: Repair stops after this many fruitless steps in a row, even if something is still wrong: more would not help.
FRUITLESS = 20
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


def doctor(options: Mapping[str, Any]) -> CommandResult:
    lines = list(settings_lines())
    try:
        server = look_at_server()
    except StoreError as error:
        lines.append(CheckLine("error", "store", str(error)))
    else:
        if options["repair"]:
            lines += guarded(repairs)
        for look in (server_lines, fleet_keys, orphans, unreadable, workers, found_lines, names):
            lines += guarded(partial(look, server))
    if options["before_start"]:
        lines = [each._replace(level="warning") if each.by_workers else each for each in lines]
    errors = sum(line.level == "error" for line in lines)
    warnings = sum(line.level == "warning" for line in lines)
    texts = [f"{line.level.upper():<8} {line.subject}: {line.says}" for line in lines]
    texts.append(f"Errors: {errors}, warnings: {warnings}.")
    told = [{"level": each.level, "subject": each.subject, "says": each.says} for each in lines]
    data = {"errors": errors, "warnings": warnings, "findings": told}
    return CommandResult(data, "\n".join(texts), 1 if errors else 0)


def guarded(look: Callable[[], Iterable[CheckLine]]) -> list[CheckLine]:
    """Run one check.  A store error becomes a line, so that the other checks still run."""
    try:
        return list(look())
    except StoreError as error:
        return [CheckLine("error", "store", str(error))]


def settings_lines() -> Iterator[CheckLine]:
    """Report the system checks of the settings, including those for deployment."""
    for message in checks.run_checks(tags=["django_jobs"], include_deployment_checks=True):
        level = "error" if message.level >= checks.ERROR else "warning"
        yield CheckLine(level, f"settings {message.id}", f"{message.msg} {message.hint or ''}".strip())


def server_lines(server: ServerFacts) -> Iterator[CheckLine]:
    """Report what is in order with the server; what is not is a finding."""
    with override("en"):
        yield from diagnosis.server_lines(server)


def workers(server: ServerFacts) -> Iterator[CheckLine]:
    """Say how many workers run, and which seem to be of another project.  A queue without any of them is a finding."""
    if found := get_store().workers():
        yield CheckLine("ok", "workers", f"{len(found)} running.")
        said = list(strangers(found))
        for line in said[:NAMED]:
            yield CheckLine("warning", "other project", line)
        if (more := len(said) - NAMED) > 0:
            yield CheckLine("warning", "other project", f"And {more} more like this.")
    else:
        yield CheckLine("warning", "workers", "No worker is running. Start `manage.py runworkers`.")


def found_lines(server: ServerFacts) -> Iterator[CheckLine]:
    """Report every finding that the overview shows, and what could not be checked."""
    report = diagnosis.check(diagnosis.measure(server=server))
    with override("en"):
        for found, left in report.lines():
            since = f" Since {iso(found.since)}." if found.since else ""
            line = diagnosis.line_of(found)
            more = f" And {left} more: `jobs findings --json` lists all." if left else ""
            yield line._replace(says=line.says + since + more)
        for text in report.unchecked_texts:
            yield CheckLine("warning", "not checked", text)
        for found, known in report.acknowledged:
            line = diagnosis.line_of(found)
            yield line._replace(level="ok", says=f"{line.says} {diagnosis.acknowledged_text(known)}")
        if not any(found.topic == "workflows" for found in report.findings):
            yield CheckLine("ok", "workflows", "None is stopped.")


def names(server: ServerFacts) -> Iterator[CheckLine]:
    """Check whether this project registers the first waiting jobs of each queue."""
    unknown: dict[tuple[str, str], int] = {}
    for queue in browse.queue_names():
        for state in (State.QUEUED, State.SCHEDULED, State.RETRY, State.BLOCKED):
            for info in get_store().page(queue, state, 0, LOOK):
                name = name_of(info.record)
                if registry.find(name) is None:
                    unknown[queue, name] = unknown.get((queue, name), 0) + 1
    for (queue, name), number in unknown.items():
        said = f"Queue {queue!r} has jobs named {name[:200]!r} ({number}). This project has no job of that name."
        remedy = "Deploy the code that has it, add the name to aliases=[…] of a renamed job, or delete the jobs."
        yield CheckLine("warning", "names", f"{said} {remedy}")
    if not unknown:
        yield CheckLine("ok", "names", f"All waiting jobs are registered (job types: {len(registry.names())}).")


def fleet_keys(server: ServerFacts) -> Iterator[CheckLine]:
    """Name the broken keys that belong to no queue: no worker mends them."""
    if broken := get_store().fleet_faults(DOCUMENTS):
        said = f"Keys that belong to no queue hold data of the wrong type, and block work: {', '.join(broken)}."
        yield CheckLine("error", "store", f"{said} `jobs doctor --repair` renames them, and new ones take their place.")


def orphans(server: ServerFacts) -> Iterator[CheckLine]:
    """Check the store for what no transition should leave."""
    sound = True
    for queue in browse.queue_names():
        faults = get_store().faults(queue)
        for kind, which in faults.found.items():
            some = ", ".join(plain(name, 100) for name in which[:NAMED]) + (", …" if len(which) > NAMED else "")
            said = f"Queue {queue!r}: {ORPHANS[kind]} ({len(which)}): {some}."
            remedy = "Workers repair this within minutes; `jobs doctor --repair` does it now."
            level = "warning" if kind in HARMLESS else "error"
            yield CheckLine(level, "orphans", f"{said} {remedy}", by_workers=True)
        if "wrong_type" in faults.found:
            yield CheckLine("warning", "orphans", f"Queue {queue!r}: the rest can be checked after that repair.")
        elif not faults.whole:
            yield CheckLine("ok", "orphans", f"Queue {queue!r} is long: only part of it was checked.")
        sound = sound and not faults.found
    if sound:
        yield CheckLine("ok", "orphans", "None were found.")


def unreadable(server: ServerFacts) -> Iterator[CheckLine]:
    """Name what cannot be read.  It is shown as it is, or counts as unknown, and everything else goes on."""
    found = 0
    for subject, read in reads():
        with noticing() as reasons:
            read()
        if reasons:
            found += 1
            said = f"{plain(subject, 200)} has values that cannot be read ({len(reasons)}): {plain(reasons[0], 200)}."
            yield CheckLine("warning", "unreadable", f"{said} Another program or a newer version wrote them.")
    if not found:
        yield CheckLine("ok", "unreadable", "Everything that was looked at can be read.")


def reads() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what to look at: its name, and the call that reads it."""
    store = get_store()
    yield "What workers say of themselves", store.workers
    yield "The state of schedules", read_schedules
    yield "The list of workflows", lambda: [browse.steps(info.id, 0, 100) for info in browse.find_workflows().rows]
    for document in DOCUMENTS:
        yield f"The document {document!r}", partial(store.get_document, document)
    if damaged := bulk.unreadable():
        yield "The list of bulk operations", partial(notice, ", ".join(damaged))
    for queue in browse.queue_names():
        yield f"Queue {queue!r}", partial(read_numbers, queue)
        for state in State:
            with noticing() as reasons:
                infos = store.page(queue, state, 0, LOOK)
                for info in infos:
                    job_in(info)
            for info in infos if reasons else ():
                yield f"Job {info.id!r} in queue {queue!r}", partial(read_job, queue, info.id)


def read_schedules() -> None:
    for fact in read_state(get_store()).unreadable():
        notice(fact)


def read_numbers(queue: str) -> None:
    store = get_store()
    store.stats([queue]), store.times([queue]), store.archive_batch(queue, LOOK)
    for width in KEPT:
        store.samples([queue], width), store.samples([queue], width, types=True)


def read_job(queue: str, id: str) -> None:
    if info := get_store().get(queue, id):
        job_in(info)


def repairs() -> Iterator[CheckLine]:
    """Repair every queue until nothing is wrong."""
    store = get_store()
    if broken := store.fleet_faults(DOCUMENTS, set_aside=True):
        yield CheckLine("warning", "repaired", f"wrong type: {', '.join(broken)}. What they held is set aside.")
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
            yield CheckLine("warning", "repaired", f"{kind.replace('_', ' ')}: {number} in queue {queue!r}.")


DOCTOR = Subcommand("Find what could lose a job, run it twice, or keep it from running.", arguments, doctor)
