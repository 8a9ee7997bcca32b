"""The alarms that follow from measured facts.  Pure: no clock, no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from django_jobs.alarms.facts import Facts, work_of
from django_jobs.browse import Series
from django_jobs.core.values import QueueStats, State

#: ms: a queue whose oldest waiting job has waited this long is late.
LATENCY = 5 * 60_000
#: Waiting retries that are an alarm, if they are also more than this part of the jobs that succeeded in the last hour.
RETRIES, RETRY_PART = 100, 0.01
#: Failed attempts in the last WINDOW minutes that are an alarm, if they are also RISE times as many as usual, or half
#: of all attempts.  The second keeps an outage red that lasts longer than the hour it is compared with.
FAILURES, WINDOW, RISE = 10, 5, 3
#: Finished jobs that wait for the archiver, and for how long (ms) the first of them may wait.
ARCHIVE, ARCHIVE_AGE = 10_000, 5 * 60_000
#: Part of maxmemory in use: nearly full, full.
NEARLY, FULL = 0.9, 0.995
#: Alarms of one kind: the list must stay short enough to be read.
LINES = 5


class Severity(StrEnum):
    """How urgent an alarm is."""

    #: jobs do not run, or may be lost.
    CRITICAL = "critical"
    #: something is not as it should be, and jobs run.
    WARNING = "warning"
    #: somebody has done it on purpose, or it was decided by a setting; it must be seen.
    NOTICE = "notice"


class Alarm(NamedTuple):
    """One thing that is wrong."""

    #: a key of KINDS in texts.py.
    kind: str
    severity: Severity
    #: ms by the store's clock; 0 = not known.
    since: int = 0
    queue: str = ""
    #: jobs, attempts, queues, percent or ms, as the kind says.
    number: int = 0
    #: a worker, job type, schedule, policy or reason, as the kind says.
    detail: str = ""
    #: the job type's or schedule's own text, if it has one besides `detail`.
    reason: str = ""


CRITICAL, WARNING, NOTICE = Severity


def alarms_of(facts: Facts) -> list[Alarm]:
    """Return every alarm that is active, worst first; within a severity in the order of RULES."""
    found = [alarm for rule in RULES for alarm in rule(facts)]
    return sorted(found, key=lambda alarm: list(Severity).index(alarm.severity))


def without_worker(facts: Facts) -> Iterator[Alarm]:
    """Queues with work that no living worker takes."""
    work = {queue: number for queue in facts.counted.queues if (number := work_of(facts.counted, queue))}
    work = {queue: number for queue, number in work.items() if queue not in facts.pull_queues}
    takers = [worker for worker in facts.workers if worker.info.get("state") not in ("stopping", "quiet")]
    served = [worker.info.get("queues") for worker in takers]
    if not takers and work:
        since = [at for queue in work if (at := waits_since(facts, facts.counted.queues[queue]))]
        yield Alarm("no_workers", CRITICAL, min(since, default=0), number=sum(work.values()))
    elif all(isinstance(queues, list) for queues in served):  # a worker whose queues cannot be read may take any queue
        taken = {str(queue) for queues in served if isinstance(queues, list) for queue in queues}
        left = sorted((-number, queue) for queue, number in work.items() if queue not in taken)
        for number, queue in left[:LINES]:
            yield Alarm("no_worker", CRITICAL, waits_since(facts, facts.counted.queues[queue]), queue, -number)


def waits_since(facts: Facts, stats: QueueStats) -> int:
    """Return since when (ms) the oldest job of a queue could run; 0 if that is not known."""
    found = [facts.now - stats.latency] if stats.latency else []
    return min(found + ([stats.overdue_since] if stats.overdue else []), default=0)


def overdue(facts: Facts) -> Iterator[Alarm]:
    """Scheduled jobs and retries that are due and were not queued."""
    late = [stats for stats in facts.counted.queues.values() if stats.overdue and not stats.paused]
    for stats in most(late, lambda stats: stats.overdue):
        yield Alarm("overdue", CRITICAL, stats.overdue_since, stats.queue, stats.overdue)


def unknown(facts: Facts) -> Iterator[Alarm]:
    """Jobs whose names no living worker knows."""
    for each in (facts.unknown or ())[:LINES]:
        yield Alarm("unknown", CRITICAL, 0, each.queue, each.jobs, each.name)


def failing(facts: Facts) -> Iterator[Alarm]:
    """Many more failed attempts than usual, or most attempts fail."""
    if facts.hour is None:
        return
    failed, succeeded = facts.hour.values.get("failed", []), facts.hour.values.get("succeeded", [])
    now, before = sum(failed[-WINDOW:]), failed[:-WINDOW]
    usual = sum(before) / max(1, len(before)) * WINDOW
    if now >= FAILURES and (now > RISE * usual or now >= sum(succeeded[-WINDOW:])):
        yield Alarm("failing", CRITICAL, failing_since(facts.hour), number=now)


def failing_since(hour: Series) -> int:
    """Return the first minute (ms) of the failures that continue now, with pauses of less than WINDOW minutes."""
    since, quiet = 0, 0
    for start, failed in zip(reversed(hour.starts), reversed(hour.values.get("failed", [])), strict=True):
        quiet = 0 if failed else quiet + 1
        if quiet >= WINDOW:
            break
        since = start if failed else since
    return since


def retries(facts: Facts) -> Iterator[Alarm]:
    """Jobs that wait for a retry pile up."""
    number = facts.counted.counts.get(State.RETRY, 0)
    done = sum(facts.hour.values.get("succeeded", [])) if facts.hour is not None else 0
    if number >= RETRIES and number > RETRY_PART * done:
        yield Alarm("retries", WARNING, failing_since(facts.hour) if facts.hour is not None else 0, number=number)


def latency(facts: Facts) -> Iterator[Alarm]:
    """Queues whose oldest job has waited too long."""
    slow = [stats for stats in facts.counted.queues.values() if stats.latency >= LATENCY and not stats.paused]
    for stats in most(slow, lambda stats: stats.latency):
        yield Alarm("latency", WARNING, facts.now - stats.latency, stats.queue, stats.latency)


def server(facts: Facts) -> Iterator[Alarm]:
    """What is wrong with the server."""
    yield from server_alarms(facts.server or {})


def server_alarms(about: Mapping[str, str]) -> Iterator[Alarm]:
    """Report a server that is a replica, full, evicting, or not saving.

    `about`: as Store.describe; {} if the server was not asked."""
    if not about:
        return
    if about.get("role") not in ("master", "unknown"):
        yield Alarm("read_only", CRITICAL, detail=about.get("role", ""))
    if about.get("last_save_failed") == "yes" or about.get("last_append_failed") == "yes":
        yield Alarm("not_saved", CRITICAL, number_of(about, "last_save") * 1000)
    if about.get("append_only_file") == "off":
        yield Alarm("not_persistent", WARNING)
    limit, used = number_of(about, "maxmemory"), number_of(about, "used_memory")
    evicts = about.get("eviction_policy") not in ("noeviction", "unknown", None)
    if evicts:
        yield Alarm("evicts", CRITICAL, number=number_of(about, "evicted_keys"), detail=about["eviction_policy"])
    elif limit and used >= FULL * limit:
        yield Alarm("full", CRITICAL, number=used * 100 // limit)
    if limit and NEARLY * limit <= used and (evicts or used < FULL * limit):
        yield Alarm("nearly_full", WARNING, number=used * 100 // limit)


def number_of(about: object, key: str) -> int:
    """Return a number of the server's description; 0 if it has none."""
    text = about.get(key, "") if isinstance(about, dict) else ""
    return int(text) if text.isdigit() else 0


def late_schedules(facts: Facts) -> Iterator[Alarm]:
    """Schedules that did not run, or cannot."""
    late = facts.late or ()
    for each in [each for each in late if not each.problem][:LINES]:
        yield Alarm("schedule_missed", CRITICAL, each.missed, detail=each.name)
    for each in [each for each in late if each.problem][:LINES]:
        yield Alarm("schedule_broken", WARNING, detail=each.name, reason=each.problem)
    if facts.schedules and not facts.workers:
        yield Alarm("schedules_idle", WARNING, number=facts.schedules)


def archive(facts: Facts) -> Iterator[Alarm]:
    """Finished jobs that wait for the archive too long, or too many of them."""
    for each in facts.archive or ():
        if each.number >= each.most:
            yield Alarm("archive_full", CRITICAL, each.since, each.queue, each.number)
        elif each.number >= ARCHIVE or (each.since and facts.now - each.since >= ARCHIVE_AGE):
            yield Alarm("archive", WARNING, each.since, each.queue, each.number)


def not_archived(facts: Facts) -> Iterator[Alarm]:
    """Finished jobs that are in no archive, because too many waited for it."""
    found = [stats for stats in facts.counted.queues.values() if stats.totals.get("not_archived")]
    for stats in most(found, lambda stats: stats.totals["not_archived"]):
        yield Alarm("not_archived", NOTICE, 0, stats.queue, stats.totals["not_archived"])


def narrow(facts: Facts) -> Iterator[Alarm]:
    """Workers that have left some of their queues, because the store is too slow for all."""
    closed = [(worker.info.get("closed"), worker.name) for worker in facts.workers]
    for number, name in [(number, name) for number, name in closed if isinstance(number, int) and number > 0][:LINES]:
        yield Alarm("narrow", WARNING, 0, "", number, name)


def dead(facts: Facts) -> Iterator[Alarm]:
    """Dead jobs: nothing runs them again until a person decides."""
    found = [stats for stats in facts.counted.queues.values() if stats.counts.get(State.DEAD)]
    for stats in most(found, lambda stats: stats.counts[State.DEAD]):
        yield Alarm("dead", WARNING, stats.dead_since, stats.queue, stats.counts[State.DEAD])


def paused(facts: Facts) -> Iterator[Alarm]:
    """Queues and job types that a user has paused."""
    stats = list(facts.counted.queues.values())
    for each in [each for each in stats if each.paused][:LINES]:
        if each.paused:
            yield Alarm("paused", NOTICE, each.paused.since, each.queue, each.paused.until, reason=each.paused.reason)
    types = [(each.queue, name, pause) for each in stats for name, pause in each.paused_types.items()]
    for queue, name, pause in types[:LINES]:
        yield Alarm("type_paused", NOTICE, pause.since, queue, pause.until, name, pause.reason)


def trimmed(facts: Facts) -> Iterator[Alarm]:
    """Dead jobs that were deleted because there were more than DEAD keeps."""
    found = [stats for stats in facts.counted.queues.values() if stats.totals.get("trimmed_dead")]
    for stats in most(found, lambda stats: stats.totals["trimmed_dead"]):
        yield Alarm("trimmed", NOTICE, 0, stats.queue, stats.totals["trimmed_dead"])


def most(found: Sequence[QueueStats], key: Callable[[QueueStats], int]) -> list[QueueStats]:
    """Return the LINES queues with the highest value."""
    return sorted(found, key=lambda stats: (-key(stats), stats.queue))[:LINES]


RULES: tuple[Callable[[Facts], Iterator[Alarm]], ...] = (
    without_worker, server, overdue, late_schedules, unknown, failing, latency, retries, archive, narrow, dead, paused,
    trimmed, not_archived,
)  # fmt: skip
