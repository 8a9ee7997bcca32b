"""Samples of one worker's totals, which it keeps itself and publishes with every report: short, and gone with it.

They are a `SampleLog` for each width.  What was before the worker started is known: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs.samples.chart import Sampled
from django_jobs.samples.log import (
    ALL,
    BROKEN,
    EVENTS,
    KEPT,
    NOTHING,
    Base,
    Counts,
    SampleLog,
    add_sample,
    three,
)
from django_jobs.serialization.checked import is_count, is_moment

#: How the attempts of a worker end: those of EVENTS, and others that the totals of a queue have, too.
ENDS = (*EVENTS, "retried", "snoozed", "cancelled")
#: Samples of one width that are read at most; a worker has 193 of a week.
_MOST = 400


class WorkerSamples:
    """The samples of a worker that runs.  Times are of its machine's clock, in whole seconds."""

    def __init__(self, now: int) -> None:
        """`now`: ms, when the worker started."""
        self._logs = {width: _begun(now, width) for width in KEPT}
        #: as written, because a report is sent far more often than a sample is taken.
        self._written = {width: _written(log) for width, log in self._logs.items()}

    def take(self, counts: Counts, now: int) -> None:
        """Write the samples that are due.  `counts`: the totals in the order of EVENTS; `now` in ms.

        Called with every report: a sample is late by no more than the time between two."""
        now -= now % 1000
        for width, log in self._logs.items():
            if now // width != log.at // width:
                log = self._logs[width] = add_sample(log, {ALL: counts}, now, width)
                self._written[width] = _written(log)

    def as_json(self) -> dict[str, Any]:
        """Return the samples for the worker's report: 0.2 KB for an idle worker, 5 KB for one that
        ends 300 jobs a second for more than a week."""
        return {str(width // 1000): written for width, written in self._written.items()}


def _begun(now: int, width: int) -> SampleLog:
    first = now - now % width
    return SampleLog(first - KEPT[width], {ALL: Base(0, first, NOTHING)}, [(first, {})])


def _written(log: SampleLog) -> list[Any]:
    """Return the start (s), the totals, and of each sample the seconds since the one before, and what was added
    without the zeros at the end."""
    spans, before = [], log.start
    for end, counts in log.spans:
        added = [] if counts is None else list(counts.get(ALL, NOTHING))
        while added and not added[-1]:
            added.pop()
        spans.append([(end - before) // 1000, *([-1] if counts is None else added)])
        before = end
    return [log.start // 1000, list(log.bases[ALL].counts), spans]


def totals_of(info: Mapping[str, Any]) -> dict[str, int] | None:
    """Return how many attempts of a worker ended in each way since it started, from its report.  None: not known, as in
    reports of older versions.  Nothing in a report is trusted."""
    given = info.get("totals") if isinstance(info, Mapping) else None
    if not isinstance(given, Mapping) or not all(is_count(given.get(end)) for end in ENDS):
        return None
    return {end: given[end] for end in ENDS}


def sampled_of(info: Mapping[str, Any], width: int) -> Sampled | None:
    """Return what a worker's report says for a chart; None if it says nothing that can be read."""
    totals = totals_of(info)
    try:
        now, (start, counts, spans) = info["at"], info["samples"][str(width // 1000)]
        if totals is None or not all(map(is_moment, (now, start, start * 1000))):
            return None
        log = SampleLog(start * 1000, {ALL: Base(0, 0, three(counts))}, [])
        for seconds, *added in spans[:_MOST]:
            if not is_count(seconds):
                return None
            log.spans.append((log.at + seconds * 1000, None if added == [-1] else {ALL: three([*added, 0, 0, 0][:3])}))
    except BROKEN:
        return None
    return Sampled(log, {ALL: (totals["succeeded"], totals["failed"], totals["dead"])}, now) if log.at <= now else None
