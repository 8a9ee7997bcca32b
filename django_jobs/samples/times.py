"""Waiting and running times of the last day and the last week, from the numbers that the store keeps since it began.

Maintenance puts away what these numbers are, every three hours and every day.  The difference is what was added since.
The end of a job costs nothing more.  A queue has at most 17 such texts, of about 50 bytes for each job type.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from django_jobs.core.times import BUCKETS, SLOTS, Histogram, Times, bound_of
from django_jobs.serialization.checked import is_count, is_moment
from django_jobs.serialization.payloads import iso

HOUR, DAY = 3_600_000, 86_400_000
#: period → (its length, the time between two texts), in ms.
PERIODS = {"day": (DAY, 3 * HOUR), "week": (7 * DAY, DAY)}
#: Bytes: a longer text is damaged.
_LONGEST = 1_000_000


class Quantiles(NamedTuple):
    """Times of attempts, in ms: upper bounds; None: longer than the longest bound."""

    p50: int | None
    p95: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How long attempts of one job type in one queue waited and ran, whether they succeeded or failed."""

    name: str
    queue: str
    attempts: int
    waiting: Quantiles | None
    running: Quantiles | None
    #: ms: attempts that ended since then; 0 = since the store began.
    since: int = 0

    def payload(self) -> dict[str, Any]:
        """Return it as the API and the command give it, in seconds."""
        parts = {"waiting": self.waiting, "running": self.running}
        return asdict(self) | {"since": iso(self.since)} | {key: in_seconds(part) for key, part in parts.items()}


def in_seconds(part: Quantiles | None) -> dict[str, float | None] | None:
    """Return quantiles in seconds."""
    return part and {key: ms and ms / 1000 for key, ms in part._asdict().items()}


def fields_at(period: str) -> list[str]:
    """Return the names under which a store keeps the texts of this period."""
    length, step = PERIODS[period]
    return [f"times:{period}:{place}" for place in range(length // step + 1)]


def due(taken: int, now: int) -> list[str]:
    """Return the fields in which the numbers of now are put away, if the last sample was taken then."""
    found = []
    for period, (length, step) in PERIODS.items():
        if taken // step != now // step:
            found.append(f"times:{period}:{now // step % (length // step + 1)}")
    return found


def write(times: Mapping[str, Times], now: int) -> bytes:
    """Return the numbers of now as a text of the store."""
    numbers = {name: [n for part in each for n in (*part.up_to, part.sum)] for name, each in times.items()}
    return zlib.compress(json.dumps([now, numbers], separators=(",", ":")).encode())


def read(text: bytes) -> tuple[int, dict[str, Times]] | None:
    """Read what `write` wrote; None if there is nothing, or it is damaged."""
    try:
        at, numbers = json.loads(zlib.decompressobj().decompress(text, _LONGEST))
        found = {str(name): _times(each) for name, each in numbers.items()}
    except (ValueError, TypeError, AttributeError, zlib.error):
        return None
    return (at, found) if is_moment(at) else None


def _times(numbers: Sequence[int]) -> Times:
    if len(numbers) != SLOTS or not all(map(is_count, numbers)):
        raise ValueError("These are not the times of a job type.")
    half = BUCKETS + 1
    waiting, running = numbers[:half], numbers[half:]
    return Times(Histogram(tuple(waiting[:-1]), waiting[-1]), Histogram(tuple(running[:-1]), running[-1]))


def run_times(queue: str, now: int, totals: Mapping[str, Times], texts: Sequence[bytes], period: str) -> list[RunTimes]:
    """Return the times of each job type of a queue in this period, most attempts first.

    It begins with the last text that is older than the period, or with the first text there is."""
    known = sorted((each for text in texts if (each := read(text)) is not None), key=lambda each: each[0])
    old = [each for each in known if each[0] <= now - PERIODS[period][0]]
    at, before = (old[-1:] or known[:1] or [(0, {})])[0]
    found = []
    for name, times in totals.items():
        waiting, running = (added(old, new) for old, new in zip(before.get(name) or (None, None), times, strict=True))
        if attempts := max(waiting[-1], running[-1]):
            found.append(RunTimes(name, queue, attempts, quantiles(waiting), quantiles(running), at))
    return sorted(found, key=lambda each: (-each.attempts, each.name))


def added(before: Histogram | None, after: Histogram) -> list[int]:
    """Return what was added to the buckets of a histogram; all of it if it was begun anew."""
    if before is None or before.up_to[-1] > after.up_to[-1]:
        return list(after.up_to)
    return [max(0, new - old) for old, new in zip(before.up_to, after.up_to, strict=True)]


def quantiles(up_to: Sequence[int]) -> Quantiles | None:
    """Return the bounds that half, 95 % and all of the attempts stayed within; None if there were none."""
    return Quantiles(*(bound_of(up_to, part) for part in (0.5, 0.95, 1))) if up_to[-1] else None
