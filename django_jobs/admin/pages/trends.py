"""Charts of successes, failures and deaths over an hour, a day or a week, and small ones for the rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils import formats
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs.admin.common.charts import (
    HEIGHT,
    NO_RELEASES,
    SMALL,
    WIDTH,
    Bar,
    Chart,
    Sparkline,
    failed_text,
    marked,
    succeeded_text,
    time_label,
)
from django_jobs.browse.trends import Trend
from django_jobs.formatting import duration, number
from django_jobs.samples.chart import Stretch
from django_jobs.samples.log import COARSE, EVENTS

#: The layers of a chart, lowest first: css class, and which event.
THROUGHPUT = (("good", 0), ("bad", 1))
FAILURES = (("bad", 1),)
DEAD = (("bad", 2),)


def charts(trend: Trend, releases: Mapping[str, int] = NO_RELEASES) -> list[Chart]:
    """Return the charts of throughput, failures and deaths, with the releases that appeared then (`marked`)."""
    sums = trend.sums
    done, bad, dead = (sums[event] for event in EVENTS)
    done_text, bad_text = succeeded_text(done), failed_text(bad)
    dead_text = ngettext("%(n)s job died", "%(n)s jobs died", dead) % {"n": number(dead)}
    hourly = trend.width == COARSE
    found = [
        chart(
            _("Throughput per hour") if hourly else _("Throughput per 5 minutes"),
            trend,
            THROUGHPUT,
            [("good", done_text), ("bad", bad_text)],
        ),
        chart(_("Failures per hour") if hourly else _("Failures per 5 minutes"), trend, FAILURES, [("bad", bad_text)]),
        chart(_("Dead per hour") if hourly else _("Dead per 5 minutes"), trend, DEAD, [("bad", dead_text)]),
    ]
    return marked(found, releases, trend.first, trend.stretches[-1].end, trend.period)


def chart(title: str, trend: Trend, layers: Sequence[tuple[str, int]], sums: list[tuple[str, str]]) -> Chart:
    """Return one chart.  Its key also says for how long nothing is known, and where most happened."""
    drawn, highest = bars(trend, layers, WIDTH, HEIGHT)
    known = [each for each in trend.stretches if each.counts is not None]
    sums = list(sums)
    most = max(known, key=lambda each: rate(each, layers, trend.width), default=None)
    if most is not None and highest:
        sums.append(("plain", _("most from %(time)s") % {"time": label(most.start, trend)}))
    if trend.unknown:
        sums.append(("unknown", _("not known for %(time)s") % {"time": duration(trend.unknown)}))
    top = number(int(highest)) if highest == int(highest) else formats.number_format(highest, 1)
    ends = label(trend.first, trend), label(trend.stretches[-1].end - trend.width, trend)
    return Chart(title, sums, drawn, top, *ends, not known)


def sparkline(trend: Trend) -> Sparkline:
    """Return the chart for a row: successes, with failures on top."""
    width, height = SMALL
    drawn, highest = bars(trend, THROUGHPUT, width, height)
    sums = trend.sums
    if all(each.counts is None for each in trend.stretches):
        return Sparkline(drawn, _("the last 24 hours are not known"), width, height)
    says = _("the last 24 hours: %(good)s succeeded, %(bad)s failed, at most %(most)s in an hour") % {
        "good": number(sums["succeeded"]),
        "bad": number(sums["failed"]),
        "most": number(-int(-highest // 1)),
    }
    if trend.unknown:
        says += ", " + _("not known for %(time)s") % {"time": duration(trend.unknown)}
    return Sparkline(drawn, says, width, height)


def bars(trend: Trend, layers: Sequence[tuple[str, int]], width: int, height: int) -> tuple[list[Bar], float]:
    """Return the rectangles, and the highest number in the width of one bar.

    A stretch that is longer than one bar is drawn in its whole length with its mean, in another style.  A stretch of
    which nothing is known is a band."""
    highest = max((rate(each, layers, trend.width) for each in trend.stretches), default=0.0)
    scale = width / (trend.stretches[-1].end - trend.first)
    gap = min(1.5, scale * trend.width / 4)
    room = height - min(4, height / 10)
    found: list[Bar] = []
    for start, end, each in joined(trend.stretches):
        left = max(0.0, (start - trend.first) * scale)
        across = (end - trend.first) * scale - left
        if each.counts is None:
            says = f"{spell(start, end, trend)}: {_('not known')}"
            found.append(Bar(round(left, 2), 0, round(across, 2), height, "unknown", says))
            continue
        bottom, says = float(height), tooltip(each, trend)
        parts = (end - start) / trend.width
        for css, event in layers:
            if each.counts[event]:
                # A thing that happened once must be visible next to one that happened a million times.
                tall = max(min(2.0, room / 8), each.counts[event] / parts / highest * room)
                bottom -= tall
                style = css + " jobs-bar-gap" if parts > 1 or each.partial else css
                found.append(
                    Bar(round(left + gap / 2, 2), round(bottom, 2), round(across - gap, 2), round(tall, 2), style, says)
                )
    return found, highest


def joined(stretches: Sequence[Stretch]) -> list[tuple[int, int, Stretch]]:
    """Return start, end and stretch; neighbours that are not known are one."""
    found: list[tuple[int, int, Stretch]] = []
    for each in stretches:
        if found and each.counts is None and found[-1][2].counts is None:
            found[-1] = (found[-1][0], each.end, each)
        else:
            found.append((each.start, each.end, each))
    return found


def rate(stretch: Stretch, layers: Sequence[tuple[str, int]], width: int) -> float:
    """Return what the layers have together, in the width of one bar."""
    if stretch.counts is None:
        return 0.0
    return sum(stretch.counts[event] for _css, event in layers) * width / (stretch.end - stretch.start)


def tooltip(stretch: Stretch, trend: Trend) -> str:
    """Return what happened in the stretch, in words."""
    done, bad, dead = stretch.counts or (0, 0, 0)
    says = _("%(time)s: %(good)s succeeded, %(bad)s failed, %(dead)s died") % {
        "time": spell(stretch.start, stretch.end, trend), "good": number(done), "bad": number(bad), "dead": number(dead)
    }  # fmt: skip
    if stretch.end - stretch.start > trend.width:
        says += ", " + _("no sample in between")
    return says + ", " + _("or more") if stretch.partial else says


def spell(start: int, end: int, trend: Trend) -> str:
    """Return a stretch of time: its start, and its end if it is longer than one bar."""
    first = label(start, trend)
    return first if end - start <= trend.width else f"{first} – {label(end, trend)}"


def label(ms: int, trend: Trend) -> str:
    """Return a time of the trend; see time_label."""
    return time_label(ms, trend.period)
