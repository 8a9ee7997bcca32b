"""Charts: numbers → rectangles, and their times.  Templates write the SVG, without style attributes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from django.utils import formats
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.browse.trends import PERIODS
from django_jobs.formatting import number as spelt
from django_jobs.formatting import plain

WIDTH, HEIGHT = 600, 120
#: The same of a small chart.
SMALL = (96, 20)
#: Releases that are named with a chart, the newest of it.
NAMED = 3


NO_RELEASES: Mapping[str, int] = {}


class Bar(NamedTuple):
    """One rectangle, in the units of the drawing, and its tooltip."""

    x: float
    y: float
    width: float
    height: float
    css: str
    says: str


class ChartMark(NamedTuple):
    """A line across a chart, and what it says."""

    x: float
    says: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    #: (css class of the bars, their total as text): serves as key and summary.
    sums: list[tuple[str, str]]
    bars: list[Bar]
    #: label at the top of the scale.
    top: str
    first: str
    last: str
    empty: bool
    width: int = WIDTH
    height: int = HEIGHT
    middle: float = HEIGHT / 2
    floor: float = HEIGHT - 0.5
    marks: Sequence[ChartMark] = ()
    #: marks that are not named with the chart.
    unnamed: int = 0

    @property
    def named(self) -> Sequence[ChartMark]:
        """The newest marks."""
        return self.marks[self.unnamed :]


class Sparkline(NamedTuple):
    """A small chart, and what it says to those who do not see it."""

    bars: list[Bar]
    says: str
    width: int
    height: int


def stacked(
    layers: Sequence[tuple[str, Sequence[float | None]]],
    says: Sequence[str],
    size: tuple[int, int] = (WIDTH, HEIGHT),
    spans: Sequence[tuple[float, float]] = (),
    vague: Container[int] = (),
) -> tuple[list[Bar], float]:
    """Return bars of several layers, lowest first (css class and values for each), and the highest sum of one bar.

    `spans`: where each column begins and ends, in widths of a bar; without them, each is one bar.  A longer column has
    its mean in its whole length.  One without values (None) is not known: a band.  `vague` ones have another style."""
    spans, (width, floor) = spans or [(i, i + 1) for i in range(len(says))], size
    columns = [[values[i] for _css, values in layers] for i in range(len(says))]
    sums = (sum(filter(None, some)) / (end - start) for some, (start, end) in zip(columns, spans, strict=True))
    highest, step = max(sums, default=0), width / (spans[-1][1] if spans else 1)
    gap, room = min(1.5, step / 4), floor - min(4, floor / 10)
    bars: list[Bar] = []
    for i, (start, end) in enumerate(spans):
        left, bottom = max(0.0, start * step), float(floor)
        across = end * step - left
        if None in columns[i]:
            bars.append(Bar(round(left, 2), 0, round(across, 2), floor, "unknown", says[i]))
        for (css, _values), value in zip(layers, columns[i], strict=True):
            if value:
                # A thing that happened once must be visible next to one that happened a million times.
                height = max(min(2.0, room / 8), value / (end - start) / highest * room)
                bottom -= height
                place = round(left + gap / 2, 2), round(bottom, 2), round(across - gap, 2), round(height, 2)
                bars.append(Bar(*place, css + " jobs-bar-gap" if i in vague else css, says[i]))
    return bars, highest


def marked(charts: Iterable[Chart], releases: Mapping[str, int], first: int, end: int, period: str) -> list[Chart]:
    """Return the charts of this stretch of time (ms) with a line where each release first appeared."""
    within = [(name, at) for name, at in releases.items() if first <= at < end]
    marks = [
        ChartMark(
            round((at - first) * WIDTH / (end - first), 2),
            _("Release %(name)s from %(time)s") % {"name": plain(name, 40), "time": time_label(at, period)},
        )
        for name, at in within
    ]
    return [replace(each, marks=marks, unnamed=max(0, len(marks) - NAMED)) for each in charts]


def read_period(query: Mapping[str, str], usual: str) -> str:
    """Return the period of the charts that the address names: "hour", "day" or "week"."""
    period = query.get("period", "")
    return period if period in PERIODS else usual


def clock(ms: int) -> str:
    """Return hour and minute in the current time zone."""
    return localtime(datetime.fromtimestamp(ms / 1000, UTC)).strftime("%H:%M")


def time_label(ms: int, period: str) -> str:
    """Return a time in the current time zone: hour and minute, in a week also the date."""
    if period != "week":
        return clock(ms)
    day = localtime(datetime.fromtimestamp(ms / 1000, UTC))
    return f"{formats.date_format(day, 'SHORT_DATE_FORMAT')} {clock(ms)}"


def succeeded_text(number: int) -> str:
    """Return how many jobs succeeded, as the key of a chart."""
    return ngettext("%(n)s job succeeded", "%(n)s jobs succeeded", number) % {"n": spelt(number)}


def failed_text(number: int) -> str:
    """Return how many attempts failed, as the key of a chart."""
    return ngettext("%(n)s attempt failed", "%(n)s attempts failed", number) % {"n": spelt(number)}
