"""Samples of a queue's totals, from which the charts of job types and of a week are made.

A store keeps totals that only grow.  Maintenance reads them every five minutes and writes what was added since the last
time.  So no job costs anything more, and a sample that was never taken loses nothing: the next one has the sum.

A queue has two logs of each kind, one of samples every five minutes and one of samples every hour.  A log is a text of
JSON.  It says when it began, what the totals were at its last sample, and for each sample what was added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django_jobs.serialization.checked import Unreadable, is_count, is_moment, loads, read_count

#: ms between two samples of a log.
FINE, COARSE = 300_000, 3_600_000
#: width of a log → for how long it keeps samples, ms.
KEPT = {FINE: 75 * 60_000, COARSE: 8 * 86_400_000}
#: What is sampled; in a log, three numbers in this order.
EVENTS = ("succeeded", "failed", "dead")
#: Job types of a queue that are sampled.  One that had no job for as long as samples are kept gives way to another.
MOST_TYPES = 100
#: Characters.  A longer text cannot be the name of a job type (LONGEST_NAME in core/definition.py), and is not sampled.
LONGEST_NAME = 200
#: The name under which a log of the whole queue has its numbers.
ALL = ""
#: A sample that is late by at most one of so many parts of its width counts as taken in time.
PARTS = 10

Counts = tuple[int, int, int]
NOTHING: Counts = (0, 0, 0)
#: Errors of a log that is damaged: it counts as none, and the next sample begins another.
BROKEN = (ValueError, TypeError, LookupError, AttributeError)


class Base(NamedTuple):
    """The totals of a job type at the last sample."""

    #: the number that stands for its name in the samples.
    place: int
    #: ms: samples up to then do not have this type, although it may have had jobs.  0 = all have it.
    since: int
    #: ms: the last sample in which it had anything.
    changed: int
    counts: Counts


@dataclass(slots=True)
class SampleLog:
    """The samples of one queue."""

    #: ms: when the first of its samples began.
    start: int
    bases: dict[str, Base] = field(default_factory=dict)
    #: end of each sample (ms), and what was added, by place; None = not known, because a total had become smaller.
    spans: list[tuple[int, dict[int, Counts] | None]] = field(default_factory=list)
    #: there were more than MOST_TYPES types: one without a place may have had jobs.
    full: bool = False

    @property
    def at(self) -> int:
        """When the last sample was taken, ms."""
        return self.spans[-1][0] if self.spans else self.start


# -- taking samples ------------------------------------------------------------


def fields_of(width: int) -> tuple[str, str]:
    """Return the names under which a store keeps the log of the queue and that of its job types."""
    return f"all:{width}", f"types:{width}"


def take(stored: Mapping[str, str], totals: Mapping[str, int], now: int) -> dict[str, str]:
    """Return the fields that a sample changes; {} if that of these five minutes has been taken.

    `stored`: "taken" and the fields of both widths; those of COARSE are needed only if the hour is another than that
    of the last sample.  `totals` as in QueueStats."""
    taken = taken_at(stored.get("taken", ""))
    if taken and (taken // FINE == now // FINE or now < taken <= now + COARSE):
        return {}
    numbers = all_of(totals), types_of(totals)
    changed = {"taken": str(now)}
    for width in (FINE, COARSE):
        if width == COARSE and taken // COARSE == now // COARSE:
            continue
        for name, given in zip(fields_of(width), numbers, strict=True):
            changed[name] = write(add_sample(read(stored.get(name, "")), given, now, width))
    return changed


def taken_at(text: str) -> int:
    """Return when the last sample was taken (ms); 0 if none was, or the text is damaged."""
    return read_count(text)


def all_of(totals: Mapping[str, int]) -> dict[str, Counts]:
    """Return the numbers of the whole queue."""
    succeeded, failed, dead = (totals.get(event, 0) for event in EVENTS)
    return {ALL: (succeeded, failed, dead)}


def types_of(totals: Mapping[str, int]) -> dict[str, Counts]:
    """Return the numbers of each job type."""
    found: dict[str, list[int]] = {}
    for key, number in totals.items():
        event, colon, name = key.partition(":")
        if colon and event in EVENTS and len(name) <= LONGEST_NAME:
            found.setdefault(name, [0, 0, 0])[EVENTS.index(event)] = number
    return {name: (numbers[0], numbers[1], numbers[2]) for name, numbers in found.items()}


def add_sample(log: SampleLog | None, totals: Mapping[str, Counts], now: int, width: int) -> SampleLog:
    """Return the log with one more sample; a new log if there was none, or if the clock has been set back."""
    if log is None or log.at > now:
        chosen = sorted(totals, key=lambda name: (-sum(totals[name]), name))[:MOST_TYPES]
        bases = {name: Base(place, 0, now, totals[name]) for place, name in enumerate(chosen, 1)}
        return SampleLog(now, bases, [], len(totals) > MOST_TYPES)
    added = {name: added_since(base.counts, totals.get(name, NOTHING)) for name, base in log.bases.items()}
    bases = {
        name: Base(base.place, base.since, now if added[name] != NOTHING else base.changed, totals.get(name, NOTHING))
        for name, base in log.bases.items()
    }
    counts = {base.place: grown for name, base in bases.items() if (grown := added[name]) and grown != NOTHING}
    full = _add_names(log, bases, counts, totals, now, width)
    spans = _pruned(log, now - KEPT[width])
    is_known = None not in added.values()
    if is_known and not counts and _can_grow(log.start, spans, width):
        spans.pop()
    return SampleLog(log.start, bases, [*spans, (now, counts if is_known else None)], full)


def added_since(before: Counts, after: Counts) -> Counts | None:
    """Return what was added; None if a total has become smaller, so that nobody knows."""
    grown = after[0] - before[0], after[1] - before[1], after[2] - before[2]
    return None if min(grown) < 0 else grown


def _add_names(
    log: SampleLog,
    bases: dict[str, Base],
    counts: dict[int, Counts],
    totals: Mapping[str, Counts],
    now: int,
    width: int,
) -> bool:
    """Give places to types that have none.  Returns whether one of them had to do without, now or before."""
    free = sorted(set(range(1, MOST_TYPES + 1)) - {base.place for base in bases.values()}, reverse=True)
    idle = [name for name, base in bases.items() if base.changed < now - KEPT[width]]
    full = log.full
    for name in sorted(totals.keys() - bases.keys()):
        if not free and idle:  # no sample that is kept has its place
            free.append(bases.pop(idle.pop()).place)
            full = True
        if not free:
            return True
        place = free.pop()
        bases[name] = Base(place, now if full else 0, now, totals[name])
        if not full and totals[name] != NOTHING:
            counts[place] = totals[name]  # there was no such type at the last sample
    return full


def _pruned(log: SampleLog, before: int) -> list[tuple[int, dict[int, Counts] | None]]:
    """Return the samples that are kept, and move the log's start to the end of the last that is not."""
    gone = 0
    while gone < len(log.spans) and log.spans[gone][0] <= before:
        log.start = log.spans[gone][0]
        gone += 1
    return log.spans[gone:]


def _can_grow(start: int, spans: Sequence[tuple[int, dict[int, Counts] | None]], width: int) -> bool:
    """Tell whether the last sample is an empty one that began in time: an idle queue needs only one."""
    return bool(spans) and spans[-1][1] == {} and in_time(spans[-2][0] if len(spans) > 1 else start, width)


def in_time(at: int, width: int) -> bool:
    """Tell whether a sample at this time counts as taken when its width began."""
    return at % width <= width // PARTS


# -- the text of a log ---------------------------------------------------------


def write(log: SampleLog) -> str:
    """Return the log as text."""
    spans = [
        [end, None]
        if counts is None
        else [end, *(number for place, three in counts.items() for number in (place, *three))]
        for end, counts in log.spans
    ]
    bases = {name: [*base[:3], *base.counts] for name, base in log.bases.items()}
    return json.dumps([log.start, int(log.full), bases, spans], separators=(",", ":"), ensure_ascii=False)


def read(text: str) -> SampleLog | None:
    """Return the log of a text; None if there is none or it cannot be read."""
    try:
        start, full, bases, spans = loads(text)
        if not all(map(is_moment, [start, *(end for end, *_ in spans)])):
            return None
        return SampleLog(
            start,
            {name: Base(*three(numbers[:3]), three(numbers[3:])) for name, numbers in bases.items()},
            [(end, _read_counts(rest)) for end, *rest in spans],
            bool(full),
        )
    except BROKEN:
        return None


def three(numbers: Sequence[Any]) -> Counts:
    """Return the three numbers of a sample.  Raises Unreadable."""
    succeeded, failed, dead = _counts(numbers)
    return succeeded, failed, dead


def _counts(numbers: Sequence[Any]) -> Sequence[int]:
    if not isinstance(numbers, list) or not all(map(is_count, numbers)):
        raise Unreadable(f"{numbers!r:.100} are no numbers")
    return numbers


def _read_counts(rest: Sequence[Any]) -> dict[int, Counts] | None:
    if rest == [None]:
        return None
    return {place: three(rest[4 * i + 1 : 4 * i + 4]) for i, place in enumerate(_counts(rest[::4]))}
