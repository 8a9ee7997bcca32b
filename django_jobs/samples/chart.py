"""What a chart shows of a queue or a worker: stretches of time, and what happened in each.  Pure.

A store keeps totals that only grow.  Maintenance looks at them every five minutes and writes down what was added since
the stretch began.  A job costs nothing more, and what was never looked at is not lost: the next look has the sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: ms: the widths of the bars.
FINE, COARSE = 300_000, 3_600_000
#: width → for how long its stretches are kept, ms.
KEPT = {FINE: 75 * 60_000, COARSE: 8 * 86_400_000}
#: What is counted; three numbers in this order.
EVENTS = ("succeeded", "failed", "dead")
#: Job types of a queue that are counted.  One that had no job for as long as its numbers are kept gives way to another.
MOST_TYPES = 100
#: Characters.  A longer text cannot be the name of a job type (LONGEST_NAME in core/definition.py), and is not counted.
LONGEST_NAME = 200
#: The name under which the whole queue has its numbers.
ALL = ""

Counts = tuple[int, int, int]
NOTHING: Counts = (0, 0, 0)


class Stretch(NamedTuple):
    """What happened in one stretch of a chart: as a rule one width long, longer if nobody looked in it."""

    #: ms.
    start: int
    end: int
    #: None: not known.
    counts: Counts | None
    #: there may have been more: a part of it is not known.
    partial: bool = False


class Written(NamedTuple):
    """What was written down of one queue, job type or worker."""

    #: ms: what was before is not known.
    since: int
    #: ms: when the stretch began that has not ended, and what has been added in it; None = not known.
    open: int
    added: Counts | None
    #: end of a stretch (ms) → its start and numbers.  If one is missing, nothing happened in the width before this end.
    ended: Mapping[int, tuple[int, Counts | None]]


def stretches(written: Written | None, width: int, number: int, now: int) -> list[Stretch]:
    """Return the last `number` widths, oldest first, up to the one that `now` is in.

    Between two looks in time, the numbers are exact.  If nobody looked for longer, one stretch has the sum, unless that
    is zero.  The first stretch may begin earlier."""
    last = now - now % width + width
    first = last - number * width
    found: list[Stretch] = []
    if written:
        since = max(written.since, written.open - KEPT[width])
        found = [Stretch(min(written.open, last - width), last, written.added)]
        while (end := found[-1].start) > max(first, since - since % width):
            start, counts = written.ended.get(end, (end, NOTHING))
            found.append(Stretch(min(start, end - width), end, counts))
        if found[-1].start <= since and since % width > width // 10:
            found[-1] = found[-1]._replace(partial=True)
    missing = Stretch(first, found[-1].start if found else last, None)
    return [bar for each in (missing, *reversed(found)) for bar in _bars(each, first, width)]


def _bars(each: Stretch, first: int, width: int) -> Iterable[Stretch]:
    """Divide a stretch in which nothing is known or nothing happened."""
    if each.counts is not None and each.counts != NOTHING:
        return [each]
    return [each._replace(start=at, end=at + width) for at in range(max(each.start, first), each.end, width)]


def added_since(before: Sequence[int], after: Sequence[int]) -> Counts | None:
    """Return what was added; None if a total has become smaller, so that nobody knows."""
    grown = after[0] - before[0], after[1] - before[1], after[2] - before[2]
    return None if min(grown) < 0 else grown


def read_numbers(text: bytes | None) -> list[int]:
    """Return the numbers of a value; [] if there is none, or another program has stored something else."""
    parts = (text or b"").split()
    return [int(part) for part in parts] if all(part.isdigit() and len(part) < 16 for part in parts) else []


def read_written(
    width: int, state: Sequence[int], base: bytes | None, totals: Sequence[int], rows: Mapping[int, bytes | None]
) -> Written | None:
    """Read what lua/upkeep/sample.lua has written of a queue or a job type; None if nothing is known.

    `state`: the numbers of the field `at`.  `totals`: those of now.  `rows`: by their ends."""
    if len(state) != 5:
        return None
    _, since, *opened, full = state
    first, open_ = 3 * (width == COARSE), opened[width == COARSE]
    numbers = read_numbers(base) if base is not None or full else [0] * 8
    if len(numbers) != 8 or open_ % width:
        return None
    ended: dict[int, tuple[int, Counts | None]] = {}
    for end, text in rows.items():
        if text is not None:
            row = read_numbers(text)
            ended[end] = (row[3] if len(row) == 4 else end), added_since(NOTHING, row) if len(row) in (3, 4) else None
    return Written(max(since, numbers[6]), open_, added_since(numbers[first:], totals), ended)


def add_up(many: Sequence[Sequence[Stretch]]) -> list[Stretch]:
    """Return the stretches of several queues as those of one.  Where one of them is not known, the sum is partial."""
    ends = sorted(set.intersection(*({each.end for each in one} for one in many))) if many else []
    sums: list[Stretch] = []
    start = min((one[0].start for one in many), default=0)
    rest = [list(reversed(one)) for one in many]
    for end in ends:
        parts: list[Stretch] = []
        for one in rest:
            while one and one[-1].end <= end:
                parts.append(one.pop())
        known = [each.counts for each in parts if each.counts is not None]
        lacks = len(known) < len(parts) or any(each.partial for each in parts)
        sums.append(Stretch(start, end, _sum(known) if known else None, lacks and bool(known)))
        start = end
    return sums


def _sum(many: Sequence[Counts]) -> Counts:
    return sum(each[0] for each in many), sum(each[1] for each in many), sum(each[2] for each in many)
