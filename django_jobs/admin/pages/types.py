"""The page of a job type: its totals, times, errors, limits, pauses and schedules, and the ways to its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.utils import formats
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_jobs import browse, schedules
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.charts import Chart, Sparkline, read_period, stacked
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs import errors as error_pages
from django_jobs.admin.jobs.filters import FILTER_LENGTH, query_of
from django_jobs.admin.jobs.forms import PAUSE_FOR
from django_jobs.admin.pages import schedules as schedule_pages
from django_jobs.admin.pages import trends
from django_jobs.browse import Match
from django_jobs.browse.trends import type_trend
from django_jobs.core import registry
from django_jobs.core.definition import JobDefinition
from django_jobs.core.times import BOUNDS, Histogram, Times, add_times
from django_jobs.core.values import QueueStats, State
from django_jobs.formatting import duration, number
from django_jobs.samples.times import PERIODS
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import FailureGroup

#: Queues on one page: the totals and times of each are read.  A link shows each of the others alone.
QUEUES = 3
#: Errors of each state, and schedules, on one page.
ERRORS, SCHEDULES = 10, 20
#: What is counted for each job type.
EVENTS = ("enqueued", "succeeded", "failed", "dead")


def type_page(console: Console, name: str) -> HttpResponse:
    """Show a job type in the queues in which it is met, or in the one that the address names.

    A type that this process does not know has a page, too: workers may know it."""
    name = registry.current_name(unquote(name))
    chosen = console.request.GET.get("queue", "")[:FILTER_LENGTH].strip()
    if chosen and chosen not in console.counted.names:
        raise Http404
    definition = registry.find(name)
    queues = [chosen] if chosen else queues_of(console, name)
    stats = sorted(browse.queue_stats(queues[:QUEUES]), key=lambda each: -total_of(each, name, "enqueued"))
    period = read_period(console.request.GET, "day")
    totals = get_store().times([each.queue for each in stats]) if stats else {}
    found, more_errors = errors(console, name, chosen)
    own = [entry for entry in schedules.entries() if registry.current_name(entry.job) == name]
    context = {
        "period": period,
        "kept": urlencode({"queue": chosen}) if chosen else "",
        "trend": trends.charts(type_trend([each.queue for each in stats], name, period), console.releases),
        "job_type": name,
        "chosen": chosen,
        "known": definition is not None,
        "options": options_of(definition) if definition else [],
        "queues": [queue_row(each, name) for each in stats],
        "more_queues": queues[QUEUES:],
        "unread": 0 if chosen else unread(console, queues),
        "times": run_times(stats, totals, name),
        "charts": charts(totals, name),
        "errors": found,
        "more_errors": more_errors,
        "states": states(console, name, chosen),
        "schedules": schedule_pages.rows(console, own[:SCHEDULES]) if own else [],
        "more_schedules": max(0, len(own) - SCHEDULES),
        "may_pause": console.may(permissions.PAUSE),
        "pause_for": PAUSE_FOR.items(),
    }
    return console.render("type.html", name, context, here="queues")


def queues_of(console: Console, name: str) -> list[str]:
    """Return the type's own queue, those in which its jobs were counted or it is paused, most first, and those in which
    its jobs failed."""
    failed = [group.queue for state in browse.GROUPED for group in console.groups(state, Match(name=name))]
    counted = [
        (-total_of(stats, name, "enqueued"), stats.queue)
        for stats in console.counted.queues.values()
        if name in stats.paused_types or any(total_of(stats, name, event) for event in EVENTS)
    ]
    definition = registry.find(name)
    own = [definition.queue] if definition else []
    found = dict.fromkeys([*own, *(queue for _number, queue in sorted(counted)), *failed])
    return [queue for queue in found if queue in console.counted.names]


def unread(console: Console, queues: Sequence[str]) -> int:
    """Return the number of other queues that may have jobs of the type.  With many queues this is not known: the
    numbers that workers publish have no totals of job types."""
    read = () if console.counted.at else console.counted.queues
    return len(frozenset(console.counted.names).difference(read, queues))


def total_of(stats: QueueStats, name: str, event: str) -> int:
    """Return how often this happened to jobs of the type, since counting began."""
    return stats.totals.get(f"{event}:{name}", 0)


def queue_row(stats: QueueStats, name: str) -> dict[str, Any]:
    """Return the totals of the type in one queue, the share of its attempts that failed, and its pause."""
    totals = {event: total_of(stats, name, event) for event in EVENTS}
    ended = totals["succeeded"] + totals["failed"]
    share = f"{formats.number_format(round(100 * totals['failed'] / ended, 1))} %" if ended else "—"
    return totals | {
        "queue": stats.queue, "share": share, "pause": stats.paused_types.get(name), "queue_paused": stats.paused
    }  # fmt: skip


def options_of(definition: JobDefinition) -> list[tuple[str, str]]:
    """Return the limits of the type, and how it is delivered and tried again."""
    options = definition.options
    found: list[tuple[str, str]] = [
        (_("Queue"), options.queue),
        (_("Delivery"), str(labels.DELIVERY[options.delivery])),
        (_("Max. attempts"), number(definition.stored_options.max_attempts)),
        (_("Priority"), number(options.priority)),
    ]
    seconds = [
        (_("Time limit"), options.timeout),
        (_("Asked to stop after"), options.soft_timeout),
        (_("Expires after"), options.expires_in),
    ]
    found += [(label, duration(value * 1000)) for label, value in seconds if value]
    if options.max_concurrency:
        key = options.concurrency_key if isinstance(options.concurrency_key, str) else ""
        found.append(
            (
                _("Max. running"),
                f"{number(options.max_concurrency)} ({key})" if key else number(options.max_concurrency),
            )
        )
    if options.unique:
        unique = options.unique if isinstance(options.unique, str) else duration(options.unique * 1000)
        found.append((_("Unique"), unique))
    if options.tags:
        found.append((_("Tags"), ", ".join(options.tags)))
    if options.sensitive:
        found.append((_("Sensitive arguments"), ", ".join(options.sensitive)))
    return found


def run_times(
    stats: Sequence[QueueStats], totals: Mapping[str, Mapping[str, Times]], name: str
) -> list[dict[str, Any]]:
    """Return how long attempts waited and ran in the last day and week, with the age of the oldest job of the queue."""
    queues, found = list(totals), list[dict[str, Any]]()
    times = get_store().run_times(queues, list(PERIODS), totals) if queues else {}
    known = {(period, each.queue): each for period, some in times.items() for each in some if each.name == name}
    for each in stats:
        for period, label in (("day", _("24 hours")), ("week", _("7 days"))):
            own = known.get((period, each.queue))
            if own is not None or (period == "day" and each.age):
                found.append({"stats": each, "period": label, "times": own, "age": each.age})
    return found


def charts(totals: Mapping[str, Mapping[str, Times]], name: str) -> list[Chart]:
    """Return how long attempts waited and ran, since counting began."""
    times = add_times([each[name] for each in totals.values() if name in each])
    return [distribution(_("Waiting time"), "wait", times.waiting), distribution(_("Run time"), "good", times.running)]


def distribution(title: str, css: str, times: Histogram) -> Chart:
    """Return a chart with a bar for each bucket, and the time within which half and 95 % of the attempts were."""
    up_to = times.up_to if len(times.up_to) == len(BOUNDS) + 1 else (0,) * (len(BOUNDS) + 1)
    counts = [after - before for before, after in zip((0, *up_to), up_to, strict=False)]
    within = [_("up to %(time)s") % {"time": duration(bound)} for bound in BOUNDS]
    beyond = _("over %(time)s") % {"time": duration(BOUNDS[-1])}
    named = [*within, beyond]
    bars, top = stacked([(css, counts)], [f"{a}: {number(b)}" for a, b in zip(named, counts, strict=True)])
    all_of = up_to[-1]
    if not all_of:
        return Chart(title, [(css, _("no data yet"))], bars, "0", within[0], beyond, True)
    half, most = (named[next(i for i, n in enumerate(up_to) if n >= all_of * share)] for share in (0.5, 0.95))
    says = ngettext("%(n)s attempt", "%(n)s attempts", all_of) % {"n": number(all_of)}
    mean = _("%(time)s on average") % {"time": duration(times.sum / all_of)}
    parts = _("half %(half)s, 95 %% %(most)s") % {"half": half, "most": most}
    return Chart(title, [(css, f"{says}, {mean}"), (css, parts)], bars, number(int(top)), within[0], beyond, False)


def errors(
    console: Console, name: str, queue: str
) -> tuple[list[tuple[str, browse.ErrorGroup, str, Sparkline]], list[tuple[str, int, str]]]:
    """Return the errors of jobs of the type that are dead or wait for a retry: the state, the error, its list, and when
    its jobs died or are due.  And for each state how many more errors there are, with the list that has them."""
    found, more = [], []
    for state in (State.DEAD, State.RETRY):
        match = Match(queue, name, arguments=console.sees_arguments)
        groups = browse.error_groups(state, match, found=failures(console, state, name, queue))
        if (left := len(groups) - ERRORS) > 0:
            query = urlencode(query_of(Match(queue, name)) | {"group": "1"})
            more.append((state.value, left, f"{console.url('jobs', state.value)}?{query}"))
        groups = groups[:ERRORS]
        for group, spark in zip(groups, error_pages.sparklines(state, groups), strict=True):
            query = urlencode(query_of(Match(queue, name, error=group.key)))
            found.append((state.value, group, f"{console.url('jobs', state.value)}?{query}", spark))
    return found, more


def failures(console: Console, state: State, name: str, queue: str) -> list[FailureGroup]:
    """Return the groups of failed jobs of the type in this queue, or in all if it is ""."""
    return [group for group in console.groups(state, Match(name=name)) if queue in ("", group.queue)]


def states(console: Console, name: str, queue: str) -> list[tuple[str, labels.Text, int | None, str]]:
    """Return the list of each state for this type, with the number of jobs where the store has an index of it."""
    query = urlencode(query_of(Match(queue, name)))
    found: list[tuple[str, labels.Text, int | None, str]] = []
    for state in State:
        count = None
        if state in browse.GROUPED:
            count = sum(group.jobs for group in failures(console, state, name, queue))
        found.append((state.value, labels.STATES[state], count, f"{console.url('jobs', state.value)}?{query}"))
    return found
