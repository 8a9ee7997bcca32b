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
    stacked,
    succeeded_text,
    time_label,
)
from django_jobs.browse.trends import Trend
from django_jobs.formatting import duration, number
from django_jobs.samples.chart import Stretch
from django_jobs.samples.log import COARSE, EVENTS, NOTHING

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
    rectangles, highest = bars(trend, layers)
    sums = list(sums)
    if highest:
        most = max(
            trend.stretches,
            key=lambda each: sum((each.counts or NOTHING)[at] for _, at in layers) / (each.end - each.start),
        )
        sums.append(("plain", _("most from %(time)s") % {"time": label(most.start, trend)}))
    if trend.unknown:
        sums.append(("unknown", _("not known for %(time)s") % {"time": duration(trend.unknown)}))
    top = number(int(highest)) if highest == int(highest) else formats.number_format(highest, 1)
    ends = label(trend.first, trend), label(trend.stretches[-1].end - trend.width, trend)
    return Chart(title, sums, rectangles, top, *ends, all(each.counts is None for each in trend.stretches))


def sparkline(trend: Trend) -> Sparkline:
    """Return the chart for a row: successes, with failures on top."""
    rectangles, highest = bars(trend, THROUGHPUT, SMALL)
    sums = trend.sums
    if all(each.counts is None for each in trend.stretches):
        return Sparkline(rectangles, _("the last 24 hours are not known"), *SMALL)
    says = _("the last 24 hours: %(good)s succeeded, %(bad)s failed, at most %(most)s in an hour") % {
        "good": number(sums["succeeded"]),
        "bad": number(sums["failed"]),
        "most": number(-int(-highest // 1)),
    }
    if trend.unknown:
        says += ", " + _("not known for %(time)s") % {"time": duration(trend.unknown)}
    return Sparkline(rectangles, says, *SMALL)


def bars(
    trend: Trend, layers: Sequence[tuple[str, int]], size: tuple[int, int] = (WIDTH, HEIGHT)
) -> tuple[list[Bar], float]:
    """Return the rectangles, and the highest number in the width of one bar.  Neighbours that are not known are one."""
    stretches: list[Stretch] = []
    for each in trend.stretches:
        if stretches and each.counts is None and stretches[-1].counts is None:
            each = each._replace(start=stretches.pop().start)
        stretches.append(each)
    spans = [((each.start - trend.first) / trend.width, (each.end - trend.first) / trend.width) for each in stretches]
    vague = {at for at, each in enumerate(stretches) if each.partial or each.end - each.start > trend.width}
    values = [(css, [each.counts and each.counts[event] for each in stretches]) for css, event in layers]
    return stacked(values, [tooltip(each, trend) for each in stretches], size, spans, vague)


def tooltip(stretch: Stretch, trend: Trend) -> str:
    """Return what happened in the stretch, in words."""
    if stretch.counts is None:
        return f"{spell(stretch.start, stretch.end, trend)}: {_('not known')}"
    done, bad, dead = stretch.counts
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
