"""What is held: paused queues, job types and schedules, by whom, since when, until when, why, and what waits behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django_jobs import browse, schedules
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.core.queue_stats import Pause
from django_jobs.core.values import QueueStats
from django_jobs.models import AuditEntry
from django_jobs.models.audit import ObjectKind
from django_jobs.operations.matching import BEHIND, behind_type
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store
from django_jobs.stores.values.sizes import chunks

#: Jobs of paused types are counted for so long (s).
COUNTED = 1.0


@dataclass(frozen=True, slots=True)
class Paused:
    """One pause."""

    #: "queue", "job type" or "schedule".
    kind: str
    #: the queue, the job type, or the id of the schedule.
    name: str
    #: of a job type, the queue in which it is paused.
    queue: str
    pause: Pause
    #: jobs that wait behind it; None: not counted, as of a schedule, whose missed runs are not made up for.
    waiting: int | None = None
    #: False: at least so many wait, and perhaps more.
    whole: bool = True


def pauses() -> list[Paused]:
    """Return everything that is held, what has been held longest first."""
    names, deadline = browse.queue_names(), monotonic() + COUNTED
    found = list[Paused]()
    for stats in (stats for some in chunks(names, LIVE_QUEUES) for stats in browse.queue_stats(some)):
        found += of_queue(stats, deadline)
    return sorted([*found, *of_schedules(schedules.entries())], key=lambda each: (each.pause.since, each.name))


def of_queue(stats: QueueStats, deadline: float) -> Iterator[Paused]:
    """Yield the pauses of one queue and of the job types in it."""
    if stats.paused is not None:
        yield Paused("queue", stats.queue, stats.queue, stats.paused, sum(stats.counts.get(each, 0) for each in BEHIND))
    for name, pause in stats.paused_types.items():
        number, whole = behind_type(stats, name, deadline)
        yield Paused("job type", name, stats.queue, pause, number, whole)


def of_schedules(entries: Iterable[ScheduleEntry]) -> Iterator[Paused]:
    """Yield the pauses of schedules.  Who paused one is in the audit log only."""
    state = schedule_state.read_state(get_store())
    since = {entry.id: at for entry in entries if (at := state.paused_at(entry)) is not None}
    acts = AuditEntry.objects.filter(kind=ObjectKind.SCHEDULE, verb="pause", subject__in=since).order_by("at", "pk")
    actors = {act.subject: act.actor for act in acts} if since else {}
    for id, at in since.items():
        yield Paused("schedule", id, "", Pause(since=at, by=actors.get(id, "")))


def payload(each: Paused) -> dict[str, Any]:
    """Return a pause as programs get it."""
    pause = each.pause
    return {
        "kind": each.kind,
        "name": each.name,
        "queue": each.queue or None,
        "since": iso(pause.since),
        "until": iso(pause.until),
        "by": pause.by or None,
        "reason": pause.reason or None,
        "waiting": each.waiting,
        "or_more": not each.whole,
    }
