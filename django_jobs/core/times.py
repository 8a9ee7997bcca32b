"""Waiting and running times of attempts, as counts in buckets: what stores keep for each job type.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

#: Upper bounds of the buckets in ms, each included; there is one more, without a bound.
BOUNDS = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000)
BUCKETS = len(BOUNDS) + 1
#: Numbers that a store keeps for one job type: the buckets and the sum (ms) of waiting, then those of running.
SLOTS = 2 * (BUCKETS + 1)
WAITING_SUM, RUNNING_SUM = BUCKETS, SLOTS - 1
#: Job types of a queue with numbers of their own; all others share those of OTHER.  256 bytes each in Redis.
MOST_NAMES = 100
OTHER = ""


class Histogram(NamedTuple):
    """How many attempts took at most so long (ms), by bound and without a bound, and the sum of all of them (ms)."""

    up_to: tuple[int, ...]
    sum: int


class Times(NamedTuple):
    """The times of the attempts of one job type that a worker ended: from when a job could run to its claim, and from
    the claim to the end of the attempt."""

    waiting: Histogram
    running: Histogram


def bound_of(up_to: Sequence[int], part: float) -> int | None:
    """Return the bound (ms) that this part of the attempts stayed within; None if it is longer than the longest."""
    return next((bound for bound, n in zip(BOUNDS, up_to, strict=False) if n >= part * up_to[-1]), None)


def slots_of(ends: Iterable[tuple[str, int, int]]) -> dict[str, dict[int, int]]:
    """Return by name what is to be added to which slots, for attempts (name, ms waited, ms run).  A negative time is
    not known, and not counted."""
    slots: dict[str, dict[int, int]] = {}
    # Most attempts of one call have the same times: quick jobs that were enqueued together.
    for (name, waited, run), number in Counter(ends).items():
        own = slots.setdefault(name, {})
        if waited >= 0:
            _add(own, bisect_left(BOUNDS, waited), WAITING_SUM, waited, number)
        if run >= 0:
            _add(own, BUCKETS + 1 + bisect_left(BOUNDS, run), RUNNING_SUM, run, number)
    return slots


def _add(slots: dict[int, int], bucket: int, sum_at: int, took: int, number: int) -> None:
    slots[bucket] = slots.get(bucket, 0) + number
    slots[sum_at] = slots.get(sum_at, 0) + took * number


def added(before: Sequence[int], more: Mapping[int, int]) -> list[int]:
    """Return the numbers of a store with what `slots_of` says is to be added to them; missing ones are 0."""
    numbers = [*before, *[0] * SLOTS][:SLOTS]
    for slot, number in more.items():
        numbers[slot] += number
    return numbers


def read_slots(slots: Sequence[int]) -> Times:
    """Return the times that these numbers of a store stand for; missing ones are 0."""
    padded = added(slots, {})
    first, second = padded[: BUCKETS + 1], padded[BUCKETS + 1 :]
    waiting, running = (Histogram(tuple(accumulate(half[:-1])), half[-1]) for half in (first, second))
    return Times(waiting, running)


def add_times(many: Iterable[Times]) -> Times:
    found = list(many)

    def together(parts: Sequence[Histogram]) -> Histogram:
        counts = [sum(column) for column in zip(*(part.up_to for part in parts), strict=True)]
        return Histogram(tuple(counts) or (0,) * BUCKETS, sum(part.sum for part in parts))

    return Times(together([each.waiting for each in found]), together([each.running for each in found]))


def as_text(slots: Mapping[str, Mapping[int, int]]) -> str:
    """Return slots for lib/ends/times.lua: two lines for each name, the second with "slot:number" of what changes."""
    lines: list[str] = []
    for name, numbers in slots.items():
        changes = " ".join([f"{slot}:{number}" for slot, number in sorted(numbers.items()) if number])
        if changes:
            lines += (name.replace("\n", " "), changes)
    return "".join(f"{line}\n" for line in lines)
