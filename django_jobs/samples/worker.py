"""What one worker has done, by five minutes and by hours.  It publishes this with every report, and it is gone with it.

What was before the worker started is known: nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs.samples.chart import EVENTS, KEPT, NOTHING, Counts, Written, added_since

#: How the attempts of a worker end: those of EVENTS, and others that the totals of a queue have, too.
ENDS = (*EVENTS, "retried", "snoozed", "cancelled")
#: The highest number that is believed, and the latest time, ms: the year 2200.
_MOST_COUNT, _LATEST = 2**63, 7_258_118_400_000
#: Stretches of one width that are read at most; a worker has 193 of a week.
_MOST = 400


class WorkerSamples:
    """The numbers of a worker that runs.  Times are of its machine's clock."""

    def __init__(self, now: int) -> None:
        """`now`: ms, when the worker started."""
        self._begin(0, now, NOTHING)

    def _begin(self, since: int, now: int, counts: Counts) -> None:
        self._since, self._at = since, now
        #: width → number of the open width, totals when it began, and what was added in each of those before.
        self._written: dict[int, tuple[int, Counts, list[list[int]]]] = {
            width: (now // width, counts, []) for width in KEPT
        }

    def take(self, counts: Counts, now: int) -> None:
        """Write down what is due.  `counts`: the totals in the order of EVENTS; `now` in ms.

        Called with every report, some seconds apart: what ends between two of them is in the earlier width."""
        if now < self._at:  # the clock has been set back
            self._begin(now, now, counts)
        self._at = now
        for width, (at, base, ended) in self._written.items():
            if now // width > at:
                if counts != base:
                    ended.append([at, *(after - before for before, after in zip(base, counts, strict=True))])
                kept = [each for each in ended if each[0] >= (now - KEPT[width]) // width]
                self._written[width] = now // width, counts, kept

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for the worker's report: 0.1 KB for an idle worker, 5 KB for one that ends 300 jobs a
        second for more than a week."""
        return {str(width // 1000): [self._since, *written] for width, written in self._written.items()}


def totals_of(info: Mapping[str, Any]) -> dict[str, int] | None:
    """Return how many attempts of a worker ended in each way since it started, from its report.  None: not known, as in
    reports of older versions.  Nothing in a report is trusted."""
    given = info.get("totals") if isinstance(info, Mapping) else None
    if not isinstance(given, Mapping) or not all(_is_number(given.get(end), _MOST_COUNT) for end in ENDS):
        return None
    return {end: given[end] for end in ENDS}


def written_by(info: Mapping[str, Any], width: int) -> tuple[int, Written] | None:
    """Return when a worker reported (ms) and what it wrote down; None if it says nothing that can be read."""
    totals = totals_of(info)
    try:
        now, (since, at, base, rows) = info["at"], info["samples"][str(width // 1000)]
        sizes = [len(base), *map(len, rows[:_MOST])]
        numbers = [*base, *(count for row in rows[:_MOST] for count in row)]
        ended = {(row[0] + 1) * width: (row[0] * width, added_since(NOTHING, row[1:])) for row in rows[:_MOST]}
        added = added_since(base, [totals[event] for event in EVENTS]) if totals else None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    times = [now, since, at * width] if _is_number(at, _LATEST) else []
    sound = times and all(_is_number(each, _LATEST) for each in times) and max(since, at * width) <= now
    if not sound or not all(_is_number(each, _MOST_COUNT) for each in numbers) or sizes != [3, *[4] * len(sizes[1:])]:
        return None
    return (now, Written(since, at * width, added, ended)) if totals else None


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
