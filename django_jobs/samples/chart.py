"""What a chart shows of the samples of a queue: stretches of time, and what happened in each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django_jobs.samples.log import LONGEST_NAME, NOTHING, Counts, SampleLog, added_since, in_time


class Sampled(NamedTuple):
    """What a store returns for a chart of one queue."""

    #: None: no sample was ever taken, or none for long.
    log: SampleLog | None
    #: job type, or ALL → the totals of now.
    totals: Mapping[str, Counts]
    #: by the store's clock, ms.
    now: int


class Stretch(NamedTuple):
    """What happened in one stretch of a chart.  It is one width long, or longer if no sample was taken in it."""

    #: ms.
    start: int
    end: int
    #: None: not known.
    counts: Counts | None
    #: there may have been more: a part of it is not known.
    partial: bool = False


def stretches(sampled: Sampled, name: str, width: int, number: int, now: int) -> list[Stretch]:
    """Return the last `number` widths of one job type (or ALL), oldest first, up to the one that `now` is in.

    Between two samples in time, the numbers are exact.  If none was taken for longer, one stretch has the sum, unless
    that is zero.  After the last sample, the totals of now say the rest.  The first stretch may begin earlier."""
    last = now // width + 1
    first = last - number
    found: list[Stretch] = []
    for low, high, counts, partial in _groups(sampled, name, width, now):
        if high <= first:
            continue
        if counts is None or counts == NOTHING:
            widths = range(max(low, first), min(high, last))
            found += [Stretch(i * width, (i + 1) * width, counts, partial) for i in widths]
        else:
            found.append(Stretch(low * width, high * width, counts, partial))
    missing = range(first, found[0].start // width if found else last)
    return [Stretch(i * width, (i + 1) * width, None) for i in missing] + found


def _groups(sampled: Sampled, name: str, width: int, now: int) -> list[tuple[int, int, Counts | None, bool]]:
    """Return from which width to which what was added, and whether its first width is known only in part."""
    log = sampled.log
    base = log.bases.get(name) if log else None
    if log is None or (base is None and log.full) or len(name) > LONGEST_NAME:
        return []
    begin = max(log.start, base.since if base else 0)
    spans = [(end, None if counts is None else counts.get(name, NOTHING)) for end, counts in log.spans if end > begin]
    spans.append((now, added_since(base.counts if base else NOTHING, sampled.totals.get(name, NOTHING))))
    found: list[tuple[int, int, Counts | None, bool]] = []
    low, partial = begin // width, not in_time(begin, width)
    total: Counts | None = NOTHING
    for number, (end, counts) in enumerate(spans, 1):
        total = None if total is None or counts is None else _sum([total, counts])
        high = end // width + 1 if number == len(spans) else end // width if in_time(end, width) else low
        if high > low:
            found.append((low, high, total, partial))
            low, partial, total = high, False, NOTHING
    return found


def _sum(many: Sequence[Counts]) -> Counts:
    return sum(each[0] for each in many), sum(each[1] for each in many), sum(each[2] for each in many)


def add_up(many: Sequence[Sequence[Stretch]]) -> list[Stretch]:
    """Return the stretches of several queues as those of one.  Where one of them is not known, the sum is partial."""
    if len(many) == 1:
        return list(many[0])
    ends = sorted(set.intersection(*({each.end for each in one} for one in many))) if many else []
    parts: list[list[Stretch]] = [[] for _ in ends]
    for one in many:
        for each in one:
            parts[bisect_left(ends, each.end)].append(each)
    found = []
    for start, end, some in zip([min((one[0].start for one in many), default=0), *ends], ends, parts, strict=False):
        known = [each.counts for each in some if each.counts is not None]
        partial = bool(known) and any(each.counts is None or each.partial for each in some)
        found.append(Stretch(start, end, _sum(known) if known else None, partial))
    return found
