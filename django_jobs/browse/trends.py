"""Successes, failures and deaths of queues, job types and workers over time, from the samples that workers take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django_jobs.core.values import WorkerInfo
from django_jobs.samples.chart import ALL, COARSE, EVENTS, FINE, Stretch, add_up, stretches
from django_jobs.samples.worker import written_by
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store

#: period → (width of a bar in ms, number of bars).
PERIODS = {"hour": (FINE, 12), "day": (COARSE, 24), "week": (COARSE, 7 * 24)}
#: The numbers of so many queues can be added up for one page: it takes 0.15 s.
MOST_QUEUES = 100


@dataclass(frozen=True, slots=True)
class Trend:
    """What happened in a period: stretches of time, oldest first, without gaps."""

    period: str
    #: ms.
    width: int
    stretches: list[Stretch]

    @property
    def sums(self) -> dict[str, int]:
        """How often each event is known to have happened."""
        known = [each.counts for each in self.stretches if each.counts is not None]
        return {event: sum(counts[at] for counts in known) for at, event in enumerate(EVENTS)}

    @property
    def unknown(self) -> int:
        """For how long nothing is known, ms."""
        return sum(each.end - each.start for each in self.stretches if each.counts is None)

    @property
    def first(self) -> int:
        """When the period begins, ms; the first stretch may begin earlier."""
        return self.stretches[-1].end - self.width * PERIODS[self.period][1]


def queue_trends(queues: Sequence[str], period: str) -> dict[str, Trend]:
    """Return the trend of each of these queues."""
    return {queue: _trend([each], period) for queue, each in _stretches(queues, ALL, period).items()}


def total_trend(queues: Sequence[str], period: str) -> Trend | None:
    """Return the trend of these queues together; None if there are more than MOST_QUEUES.

    A queue in which nothing was ever counted adds nothing; one whose server does not answer is not known."""
    if len(queues) > MOST_QUEUES:
        return None
    return _trend(list(_stretches(queues, ALL, period, used=True).values()), period)


def type_trends(queue: str, names: Iterable[str], period: str) -> dict[str, Trend]:
    """Return the trend of each of these job types in one queue."""
    names = list(names)
    _, found = get_store().samples([queue], *PERIODS[period], names)
    return {name: _trend([found[queue][name]] if found[queue] else [], period) for name in names}


def type_trend(queues: Sequence[str], name: str, period: str) -> Trend:
    """Return the trend of a job type in these queues together."""
    return _trend(list(_stretches(queues, name, period).values()), period)


def worker_trend(worker: WorkerInfo, period: str) -> Trend:
    """Return the trend of one worker, up to its last report: nothing before it started, by the clock of its machine."""
    now, written = written_by(worker.info, PERIODS[period][0]) or (worker.seen_at, None)
    return _trend([stretches(written, *PERIODS[period], now)], period)


def _stretches(queues: Sequence[str], name: str, period: str, *, used: bool = False) -> dict[str, list[Stretch]]:
    """Return the stretches of each queue, or only of each that was used; a server that does not answer knows none."""
    now, found = get_store().samples(queues, *PERIODS[period], [name]) if queues else (0, {})
    unknown = stretches(None, *PERIODS[period], now)
    return {each: found.get(each, {}).get(name, unknown) for each in queues if not used or found.get(each) != {}}


def _trend(many: Sequence[list[Stretch]], period: str) -> Trend:
    return Trend(period, PERIODS[period][0], add_up(many or [stretches(None, *PERIODS[period], get_store().now())]))


def trend_payload(trend: Trend) -> dict[str, object]:
    """Return the trend as the API shows it."""
    return {
        "period": trend.period,
        "seconds": trend.width // 1000,
        "stretches": [
            {
                "start": iso(each.start),
                "end": iso(each.end),
                **dict(zip(EVENTS, each.counts or (None,) * len(EVENTS), strict=True)),
                "partial": each.partial,
            }
            for each in trend.stretches
        ],
    }
