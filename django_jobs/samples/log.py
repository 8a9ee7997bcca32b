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
from itertools import chain
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

    #: ms: samples up to then do not have this type, although it may have had jobs.  0 = all have it.
    since: int
    #: ms: the last sample in which it had anything.
    changed: int
    counts: Counts


#: The end of a sample (ms), and what was added, by name; None = not known, because a total had become smaller.
Span = tuple[int, dict[str, Counts] | None]


@dataclass(slots=True)
class SampleLog:
    """The samples of one queue."""

    #: ms: when the first of its samples began.
    start: int
    bases: dict[str, Base] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    #: there were more than MOST_TYPES types: one without a base may have had jobs.
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
    taken = read_count(stored.get("taken", ""))
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
    """Add a sample to the log and return it; a new log if there was none, or if the clock has been set back."""
    if log is None or log.at > now:
        chosen = sorted(totals, key=lambda name: (-sum(totals[name]), name))[:MOST_TYPES]
        return SampleLog(now, {name: Base(0, now, totals[name]) for name in chosen}, [], len(totals) > MOST_TYPES)
    added: dict[str, Counts | None] = {}
    for name, base in log.bases.items():
        after = totals.get(name, NOTHING)
        added[name] = grown = added_since(base.counts, after)
        log.bases[name] = Base(base.since, base.changed if grown == NOTHING else now, after)
    added |= _add_names(log, totals, now, width)
    while log.spans and log.spans[0][0] <= now - KEPT[width]:
        log.start = log.spans.pop(0)[0]
    counts = {name: grown for name, grown in added.items() if grown and grown != NOTHING}
    is_known = None not in added.values()
    if is_known and not counts and log.spans and log.spans[-1][1] == {}:
        began = log.spans[-2][0] if len(log.spans) > 1 else log.start
        if in_time(began, width):  # an idle queue needs only one sample
            log.spans.pop()
    log.spans.append((now, counts if is_known else None))
    return log


def added_since(before: Counts, after: Counts) -> Counts | None:
    """Return what was added; None if a total has become smaller, so that nobody knows."""
    grown = after[0] - before[0], after[1] - before[1], after[2] - before[2]
    return None if min(grown) < 0 else grown


def _add_names(log: SampleLog, totals: Mapping[str, Counts], now: int, width: int) -> dict[str, Counts]:
    """Add the types that the log does not have, as far as there is room.  Returns what they had since the last sample,
    where that is known."""
    idle = [name for name, base in log.bases.items() if base.changed < now - KEPT[width]]
    added: dict[str, Counts] = {}
    for name in sorted(totals.keys() - log.bases.keys()):
        if len(log.bases) >= MOST_TYPES:
            log.full = True
            if not idle:
                break
            del log.bases[idle.pop()]  # no sample that is kept has it
        log.bases[name] = Base(now if log.full else 0, now, totals[name])
        if not log.full:
            added[name] = totals[name]  # there was no such type at the last sample
    return added


def in_time(at: int, width: int) -> bool:
    """Tell whether a sample at this time counts as taken when its width began."""
    return at % width <= width // PARTS


# -- the text of a log ---------------------------------------------------------


def write(log: SampleLog) -> str:
    """Return the log as text.  In its samples, a number stands for the name of a type."""
    places = {name: place for place, name in enumerate(log.bases, 1)}
    spans: list[list[int | None]] = []
    for end, counts in log.spans:  # only of a damaged log, a sample may have a name without a base
        some = [(places[name], *three) for name, three in (counts or {}).items() if name in places]
        spans.append([end, None] if counts is None else [end, *chain.from_iterable(some)])
    bases = {name: [places[name], *base[:2], *base.counts] for name, base in log.bases.items()}
    return json.dumps([log.start, int(log.full), bases, spans], separators=(",", ":"), ensure_ascii=False)


def read(text: str) -> SampleLog | None:
    """Return the log of a text; None if there is none or it cannot be read."""
    if not text:  # of a new queue, which `jobs doctor` must not take for a damaged one
        return None
    try:
        start, full, given, spans = loads(text)
        if not all(map(is_moment, [start, *(end for end, *_ in spans)])):
            return None
        bases = {name: Base(*three(numbers[:3])[1:], three(numbers[3:])) for name, numbers in given.items()}
        names = {numbers[0]: name for name, numbers in given.items()}
        return SampleLog(start, bases, [(end, _read_counts(rest, names)) for end, *rest in spans], bool(full))
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


def _read_counts(rest: Sequence[Any], names: Mapping[int, str]) -> dict[str, Counts] | None:
    if rest == [None]:
        return None
    found = [(place, three(rest[4 * i + 1 : 4 * i + 4])) for i, place in enumerate(_counts(rest[::4]))]
    return {names[place]: counts for place, counts in found if place in names}
