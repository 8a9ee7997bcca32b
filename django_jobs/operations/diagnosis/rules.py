"""The findings that follow from facts of queues, the server, the outbox and schedules.  Pure: no clock, no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from django_jobs.browse.health import CLOSED, unserved
from django_jobs.core.values import Pause, QueueStats, State
from django_jobs.operations.diagnosis.facts import Facts, work_of
from django_jobs.operations.diagnosis.finding import Finding, Severity
from django_jobs.operations.diagnosis.looks import STILL

#: ms: a queue whose oldest waiting job has waited this long is late.
LATENCY = 5 * 60_000
#: Finished jobs that wait for the archiver, and for how long (ms) the first of them may wait.
ARCHIVE, ARCHIVE_AGE = 10_000, 5 * 60_000
#: Seconds for which an entry of the outbox may wait.
OUTBOX_AGE = 30
#: Part of maxmemory in use: nearly full, full.
NEARLY, FULL = 0.9, 0.995
#: Seconds: if the clocks of the store and of another machine differ by more, times on pages are misleading; if by half
#: a lease, they are wrong.
CLOCK = 2.0
#: ms: a pause that has lasted for so long is taken for forgotten.
FORGOTTEN = 86_400_000

ERROR, WARNING, NOTICE = Severity


def without_worker(facts: Facts) -> Iterator[Finding]:
    """Queues with work that no living worker takes."""
    work = {queue: number for queue in facts.counted.queues if (number := work_of(facts.counted, queue))}
    work = {queue: number for queue, number in work.items() if queue not in facts.pull_queues}
    if work and all(worker.info.get("state") in CLOSED for worker in facts.workers):
        since = [at for queue in work if (at := waits_since(facts, facts.counted.queues[queue]))]
        yield Finding("no_workers", ERROR, min(since, default=0), number=sum(work.values()))
        return
    left = sorted((-number, queue) for queue, number in work.items() if unserved(queue, facts.workers)[0])
    for number, queue in left:
        yield Finding("no_worker", ERROR, waits_since(facts, facts.counted.queues[queue]), queue, -number)


def waits_since(facts: Facts, stats: QueueStats) -> int:
    """Return since when (ms) the oldest job of a queue could run; 0 if that is not known."""
    found = [facts.now - stats.latency] if stats.latency else []
    return min(found + ([stats.overdue_since] if stats.overdue else []), default=0)


def overdue(facts: Facts) -> Iterator[Finding]:
    """Scheduled jobs and retries that are due and were not queued."""
    for number, stats in worst(facts, lambda stats: 0 if stats.paused else stats.overdue):
        state = State.SCHEDULED if stats.counts.get(State.SCHEDULED) else State.RETRY
        yield Finding("overdue", ERROR, stats.overdue_since, stats.queue, number, more={"state": state})


def unknown(facts: Facts) -> Iterator[Finding]:
    """Jobs whose names no living worker knows."""
    for each in facts.unknown or ():
        yield Finding("unknown", ERROR, 0, each.queue, each.jobs, each.name)


def latency(facts: Facts) -> Iterator[Finding]:
    """Queues whose oldest job has waited too long."""
    for waited, stats in worst(facts, lambda stats: 0 if stats.paused or stats.latency < LATENCY else stats.latency):
        yield Finding("latency", WARNING, facts.now - waited, stats.queue, waited)


def server(facts: Facts) -> Iterator[Finding]:
    """What is wrong with the server."""
    yield from server_findings(facts.server or {}, facts.clock_off, facts.lease)


def server_findings(about: Mapping[str, str], clock_off: float = 0.0, lease: float = 30_000) -> Iterator[Finding]:
    """Report a server that is a replica, full, evicting, or not saving.

    `about`: as Store.describe; {} if the server was not asked."""
    if abs(clock_off) > CLOCK:
        severity = ERROR if abs(clock_off) > lease / 2000 else WARNING
        yield Finding("server_clock", severity, more={"seconds": clock_off})
    if not about:
        return
    if about.get("role") not in ("master", "unknown"):
        yield Finding("read_only", ERROR, detail=about.get("role", ""))
    if about.get("last_save_failed") == "yes" or about.get("last_append_failed") == "yes":
        yield Finding("not_saved", ERROR, number_of(about, "last_save") * 1000)
    if about.get("append_only_file") == "off":
        yield Finding("not_persistent", WARNING)
    limit, used = number_of(about, "maxmemory"), number_of(about, "used_memory")
    evicts = about.get("eviction_policy") not in ("noeviction", "unknown", None)
    if evicts:
        yield Finding("evicts", ERROR, number=number_of(about, "evicted_keys"), detail=about["eviction_policy"])
    elif limit and used >= FULL * limit:
        yield Finding("full", ERROR, number=used * 100 // limit)
    if limit and NEARLY * limit <= used and (evicts or used < FULL * limit):
        yield Finding("nearly_full", WARNING, number=used * 100 // limit)


def number_of(about: Mapping[str, str], key: str) -> int:
    """Return a number of the server's description; 0 if it has none."""
    text = about.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def late_schedules(facts: Facts) -> Iterator[Finding]:
    """Schedules that did not run, cannot, skipped their last run, or were paused long ago."""
    for each in facts.late or ():
        if each.problem:
            yield Finding("schedule_broken", WARNING, detail=each.name, reason=each.problem)
        elif each.missed:
            yield Finding("schedule_missed", ERROR, each.missed, detail=each.name)
        elif each.skipped:
            yield Finding("schedule_skipped", WARNING, each.skipped, detail=each.name)
        elif facts.now - each.paused >= FORGOTTEN:
            yield Finding("schedule_paused", WARNING, each.paused, detail=each.name)
    if facts.schedules and not facts.workers:
        yield Finding("schedules_idle", WARNING, number=facts.schedules)


def halted(facts: Facts) -> Iterator[Finding]:
    """Workflows and batches that do not go on by themselves."""
    for info, why in facts.halted or ():
        if why == "open":
            yield Finding("open_batch", WARNING, info.touched_at, detail=info.name, job=info.id)
        else:
            ends = ", ".join(f"{number} {state}" for state, number in info.stopped_by.items())
            since, number = info.ended_at or info.touched_at, sum(info.stopped_by.values())
            more = {"waiting": info.counts["waiting"]}
            yield Finding("stopped_workflow", WARNING, since, "", number, info.name, ends, info.id, more)


def archive(facts: Facts) -> Iterator[Finding]:
    """Finished jobs that wait for the archive too long, or too many of them."""
    for each in facts.archive or ():
        if each.number >= each.most:
            yield Finding("archive_full", ERROR, each.since, each.queue, each.number)
        elif each.number >= ARCHIVE or (each.since and facts.now - each.since >= ARCHIVE_AGE):
            yield Finding("archive", WARNING, each.since, each.queue, each.number)


def outbox(facts: Facts) -> Iterator[Finding]:
    """Entries of the outbox that workers do not send, and those that wait for a decision."""
    kept = facts.outbox
    if kept is None:
        return
    if kept.left:
        yield Finding("outbox_off", ERROR, number=kept.left)
    if kept.oldest >= OUTBOX_AGE:
        yield Finding("outbox", ERROR, facts.now - kept.oldest_ms, number=kept.waiting)
    if kept.held:
        yield Finding("outbox_held", WARNING, number=kept.held)


def notifiers(facts: Facts) -> Iterator[Finding]:
    """Callables of NOTIFY that do not tell anybody."""
    for each in facts.notifiers or ():
        yield Finding("notifier", WARNING, each.at, detail=each.path, reason=each.error)


def narrow(facts: Facts) -> Iterator[Finding]:
    """Workers that have left some of their queues, because the store is too slow for all."""
    closed = [(worker.info.get("closed"), worker.name) for worker in facts.workers]
    for number, name in [(number, name) for number, name in closed if isinstance(number, int) and number > 0]:
        yield Finding("narrow", WARNING, 0, "", number, name)


def dead(facts: Facts) -> Iterator[Finding]:
    """Dead jobs: nothing runs them again until a person decides."""
    for number, stats in worst(facts, lambda stats: stats.counts.get(State.DEAD, 0)):
        yield Finding("dead", NOTICE, stats.dead_since, stats.queue, number)


def paused(facts: Facts) -> Iterator[Finding]:
    """Queues and job types that a user has paused; with work behind the pause, or after a day, more than a notice."""
    for stats in facts.counted.queues.values():
        if stats.paused:
            waiting = stats.counts.get(State.QUEUED, 0) + stats.counts.get(State.BLOCKED, 0) + stats.overdue
            yield of_pause(facts.now, stats.queue, "", stats.paused, waiting)
        for name, pause in stats.paused_types.items():
            yield of_pause(facts.now, stats.queue, name, pause, facts.behind.get((stats.queue, name), 0))


def of_pause(now: int, queue: str, name: str, pause: Pause, waiting: int = 0) -> Finding:
    """Return the finding of one pause."""
    if pause.since and now - pause.since >= FORGOTTEN:
        return Finding("old_pause", WARNING, pause.since, queue, 0, name, pause.reason)
    if waiting and now - pause.since >= STILL:
        return Finding("held_work", WARNING, pause.since, queue, waiting, name, pause.reason)
    return Finding("type_paused" if name else "paused", NOTICE, pause.since, queue, pause.until, name, pause.reason)


def dropped(facts: Facts) -> Iterator[Finding]:
    """Dead jobs that were deleted because there were more than DEAD keeps, and finished jobs that are in no archive,
    because too many waited for it."""
    for cause, event in (("trimmed", "trimmed_dead"), ("not_archived", "not_archived")):
        for number, stats in worst(facts, partial(_total, event)):
            yield Finding(cause, NOTICE, 0, stats.queue, number)


def _total(event: str, stats: QueueStats) -> int:
    return stats.totals.get(event, 0)


def worst(facts: Facts, key: Callable[[QueueStats], int]) -> list[tuple[int, QueueStats]]:
    """Return the queues in which this number is not 0, each with its number, the highest first."""
    found = [(number, stats) for stats in facts.counted.queues.values() if (number := key(stats))]
    return sorted(found, key=lambda pair: (-pair[0], pair[1].queue))


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    without_worker, server, overdue, late_schedules, unknown, latency, halted, archive, outbox, notifiers, narrow, dead,
    paused, dropped,
)  # fmt: skip
