"""The errors of dead jobs and of jobs that wait for a retry: as groups, and when their jobs died or are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs import browse
from django_jobs.admin.common.charts import SMALL, Chart, Sparkline, marked, read_period, stacked, time_label
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.filters import Filter, query_of
from django_jobs.browse import ErrorGroup, Match
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.core.values import State
from django_jobs.formatting import number
from django_jobs.operations.error_inbox import remembered
from django_jobs.samples.log import COARSE
from django_jobs.stores.values.lists import Bars

#: Groups of errors that one page shows, the largest.
GROUPS = 100
#: Verbs that stand at each group; the others are in its list.
GROUP_VERBS = ("retry", "delete")


def groups(console: Console, state: State, match: Match) -> dict[str, Any]:
    """Return the context of the groups of errors, largest first; of a stretch of time, those with jobs in it."""
    match = Match(match.queue, match.name, arguments=match.arguments, since=match.since, before=match.before)
    queues = [match.queue] if match.queue else console.counted.names
    try:
        span = match.span
        found = (
            browse.error_groups_within(state, match, span, queues)
            if span
            else browse.error_groups(state, match, queues)
        )
    except browse.TooMany:
        return {"too_many": _("The errors of this time are %(why)s.") % {"why": too_many()}, "total": 0}
    sparks = sparklines(state, found[:GROUPS], queues)
    return {
        "groups": [
            (group, f"?{urlencode(query_of(replace(match, error=group.key)))}", spark)
            for group, spark in zip(found, sparks, strict=False)
        ],
        "more_groups": max(0, len(found) - GROUPS),
        "remembered": remembered(queues) if found else (),
        "group_verbs": GROUP_VERBS,
        "spark_title": period_title(state, "day"),
        "total": sum(group.count for group in found),
        "unindexed": 0 if span or match.name else unindexed(state, queues, sum(group.count for group in found)),
    }


def unindexed(state: State, queues: Sequence[str], known: int) -> int:
    """Return how many jobs of these queues the index does not have yet: workers are building it.  `known`: those that
    it had before."""
    if len(queues) > LIVE_QUEUES:
        return 0
    return max(0, sum(stats.counts.get(state, 0) for stats in browse.queue_stats(queues)) - known)


def one_error(console: Console, state: State, chosen: Filter) -> dict[str, Any]:
    """Return the context of the error that a list is filtered by: when it came, and how many of its jobs when."""
    group = group_of(console, state, chosen.match)
    if group is None:
        return {"error": chosen.match.error}
    period = read_period(console.request.GET, "day")
    bars = browse.bars_of(state, period)
    (counts,) = browse.error_bars(state, [group], bars)
    return {
        "error": text_of(group),
        "one_error": group,
        "remembered": remembered(console.counted.names),
        "period": period,
        "period_title": period_title(state, period),
        "kept": urlencode(chosen.query),
        "trend": marked([chart(state, group, period, bars, counts)], console.releases, bars.first, bars.end, period)[0],
    }


def group_of(console: Console, state: State, match: Match) -> ErrorGroup | None:
    """Return the error that a list is filtered by, of any time; None if there is no such error, or no such filter."""
    if not match.error or state not in browse.GROUPED:
        return None
    match = replace(match, since=0, before=0, tag="")
    return next(iter(browse.error_groups(state, match, found=console.groups(state, match))), None)


def shown_error(console: Console, state: State, match: Match) -> str:
    """Return the error that a list is filtered by, as far as this user may see it."""
    group = group_of(console, state, match)
    return match.error if group is None else text_of(group)


def text_of(group: ErrorGroup) -> str:
    return f"{group.error_type}: {group.message}" if group.message else group.error_type


def period_title(state: State, period: str) -> str:
    """Return the heading of a chart: dead jobs are shown by the past, jobs that wait for a retry by the future."""
    if state is State.RETRY:
        return {"hour": _("The next hour"), "day": _("The next 24 hours"), "week": _("The next 7 days")}[period]
    return {"hour": _("The last hour"), "day": _("The last 24 hours"), "week": _("The last 7 days")}[period]


def sparklines(state: State, groups: Sequence[ErrorGroup], queues: Sequence[str] | None = None) -> list[Sparkline]:
    """Return a small chart of 24 hours for each of these errors; `queues`: as for `error_bars`."""
    bars = browse.bars_of(state, "day")
    return [
        sparkline(state, group, bars, counts)
        for group, counts in zip(groups, browse.error_bars(state, groups, bars, queues), strict=True)
    ]


def sparkline(state: State, group: ErrorGroup, bars: Bars, counts: list[int] | None) -> Sparkline:
    title = period_title(state, "day")
    if counts is None:
        return Sparkline([], f"{title}: {too_many()}", *SMALL)
    drawn, _top = stacked([("bad", counts)], texts(state, bars, counts, "day"), SMALL)
    says = f"{title}: {in_time(state, sum(counts))}, {at_other_times(in_all(group) - sum(counts))}"
    return Sparkline(drawn, says, *SMALL)


def chart(state: State, group: ErrorGroup, period: str, bars: Bars, counts: list[int] | None) -> Chart:
    hourly = bars.width == COARSE
    if state is State.RETRY:
        title = _("Due per hour") if hourly else _("Due per 5 minutes")
    else:
        title = _("Dead per hour") if hourly else _("Dead per 5 minutes")
    ends = time_label(bars.first, period), time_label(bars.end - bars.width, period)
    if counts is None:
        return Chart(title, [("unknown", too_many())], [], "0", *ends, True)
    drawn, top = stacked([("bad", counts)], texts(state, bars, counts, period))
    sums = [("bad", in_time(state, sum(counts))), ("plain", at_other_times(in_all(group) - sum(counts)))]
    return Chart(title, sums, drawn, number(int(top)), *ends, False)


def texts(state: State, bars: Bars, counts: Sequence[int], period: str) -> list[str]:
    starts = range(bars.first, bars.end, bars.width)
    return [f"{time_label(at, period)}: {in_time(state, n)}" for at, n in zip(starts, counts, strict=True)]


def in_time(state: State, count: int) -> str:
    """Return how many jobs died or are due."""
    if state is State.RETRY:
        return ngettext("%(n)s job is due", "%(n)s jobs are due", count) % {"n": number(count)}
    return ngettext("%(n)s job died", "%(n)s jobs died", count) % {"n": number(count)}


def at_other_times(count: int) -> str:
    """Return how many jobs of the error are in no bar."""
    return ngettext("%(n)s at another time", "%(n)s at other times", max(0, count)) % {"n": number(max(0, count))}


def in_all(group: ErrorGroup) -> int:
    """Return how many jobs a counted error has, of any time."""
    return sum(part.jobs for part in group.parts)


def too_many() -> str:
    """Return why an error is not counted."""
    return _("not counted, because there are too many jobs or queues; choose a queue or a job type")
