"""Successes, failures and deaths of queues, job types and workers over time, from the samples that workers take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django_jobs.core import registry
from django_jobs.core.values import WorkerInfo
from django_jobs.samples.chart import Sampled, Stretch, add_up, stretches
from django_jobs.samples.log import ALL, COARSE, EVENTS, FINE, NOTHING
from django_jobs.samples.worker import sampled_of
from django_jobs.serialization.payloads import iso
from django_jobs.stores import get_store

#: period → (width of a bar in ms, number of bars).
PERIODS = {"hour": (FINE, 12), "day": (COARSE, 24), "week": (COARSE, 7 * 24)}


#: The samples of so many queues can be added up for one page: it takes 0.15 s.
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
    return {queue: _trend([each], ALL, period) for queue, each in _samples(queues, period).items()}


def total_trend(queues: Sequence[str], period: str) -> Trend | None:
    """Return the trend of these queues together; None if there are more than MOST_QUEUES.

    A queue in which nothing was ever counted adds nothing; one whose server does not answer is not known."""
    if len(queues) > MOST_QUEUES:
        return None
    found = _samples(queues, period).values()
    return _trend([each for each in found if each.log is not None or each.totals != {ALL: NOTHING}], ALL, period)


def type_trends(queue: str, names: Iterable[str], period: str) -> dict[str, Trend]:
    """Return the trend of each of these job types in one queue."""
    sampled = list(get_store().samples([queue], PERIODS[period][0], types=True).values())
    return {name: _trend(sampled, registry.identity_of(name), period) for name in names}


def type_trend(queues: Sequence[str], name: str, period: str) -> Trend:
    """Return the trend of a job type in these queues together."""
    return _trend(list(_samples(queues, period, types=True).values()), registry.identity_of(name), period)


def worker_trend(worker: WorkerInfo, period: str) -> Trend:
    """Return the trend of one worker, up to its last report: nothing before it started, by the clock of its machine."""
    sampled = sampled_of(worker.info, PERIODS[period][0]) or Sampled(None, {}, worker.seen_at)
    return _trend([sampled], ALL, period)


def _samples(queues: Sequence[str], period: str, *, types: bool = False) -> dict[str, Sampled]:
    """Return the samples of each queue; none, and no totals, of one whose server does not answer."""
    found = get_store().samples(queues, PERIODS[period][0], types=types) if queues else {}
    now = max((each.now for each in found.values()), default=0)
    return {queue: found.get(queue) or Sampled(None, {}, now) for queue in queues}


def _trend(sampled: list[Sampled], name: str, period: str) -> Trend:
    width, number = PERIODS[period]
    now = max((each.now for each in sampled), default=0) or get_store().now()
    many = [stretches(each, name, width, number, now) for each in sampled or [Sampled(None, {}, now)]]
    return Trend(period, width, add_up(many))


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
