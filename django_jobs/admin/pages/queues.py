"""Queues: length, age, concurrency; pause and resume."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import browse, operations
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.charts import Chart, read_period
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.labels import Text
from django_jobs.admin.common.sorting import Column, Sorting, columns_of, read_sorting
from django_jobs.admin.jobs.forms import PAUSE_FOR, PauseForm, end_of
from django_jobs.admin.pages import overview, trends
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.browse.trends import queue_trends, type_trends
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import QueueStats, State
from django_jobs.exceptions import JobsError
from django_jobs.formatting import exact
from django_jobs.models.audit import ObjectKind, pause_details
from django_jobs.stores import get_store

#: The states whose jobs the list counts.
SHOWN = (State.QUEUED, State.RUNNING, State.SCHEDULED, State.RETRY, State.BLOCKED, State.DEAD)
#: The columns of the list, by which it can be sorted: a state or another number → its heading.
COLUMNS: dict[str, Text] = {
    "name": gettext_lazy("Queue"),
    "latency": gettext_lazy("Latency"),
    **{state.value: labels.STATES[state] for state in SHOWN},
    "max_concurrency": gettext_lazy("Max. running"),
    "max_length": gettext_lazy("Max. length"),
}
#: The same of the table of job types.
TYPE_COLUMNS: dict[str, Text] = {
    "name": gettext_lazy("Job type"),
    "enqueued": gettext_lazy("Enqueued"),
    "succeeded": gettext_lazy("Succeeded"),
    "failed": gettext_lazy("Failed attempts"),
    "dead": gettext_lazy("Dead"),
}
#: Maximum job types with totals on the page of a queue.
TYPES = 50


def queue_list(console: Console) -> HttpResponse:
    """Show all queues, a page at a time.  Uses this request's counts, and reads the queues that were not counted."""
    wanted = console.request.GET.get("q", "").strip()[:200]
    names = [name for name in console.counted.names if wanted.casefold() in name.casefold()]
    by, can_sort = read_sorting(console.request.GET, list(COLUMNS)), not console.counted.missing
    if by.key and can_sort:
        names = sorted(names, key=lambda name: value_of(console.counted.queues[name], by.key), reverse=by.descending)
    shown, pages = console.part(names, LIVE_QUEUES, ({"q": wanted} if wanted else {}) | by.query)
    counted = dict(console.counted.queues)
    if not counted.keys() >= set(shown):
        counted |= {stats.queue: stats for stats in browse.readable_stats(shown)}
    damaged = [name for name in shown if name not in counted]
    shown = [name for name in shown if name in counted]
    drawn = queue_trends(shown, "day")
    context = pages | {
        "rows": [queue_row(counted[name]) | {"spark": trends.sparkline(drawn[name])} for name in shown],
        "damaged": damaged,
        "counted_at": console.counted.at,
        "number": len(names),
        "columns": headings(by, wanted, can_sort=can_sort),
        "by": by,
        "q": wanted,
        "may_pause": console.may(permissions.PAUSE),
        "pause_for": PAUSE_FOR.items(),
    }
    return console.render("queues.html", _("Queues"), context, here="queues")


def headings(by: Sorting, wanted: str, *, can_sort: bool) -> list[Column]:
    """Return the headings of the list.  It cannot be sorted while some queues are not counted."""
    if not can_sort:
        return [Column(label, number=key != "name") for key, label in COLUMNS.items()]
    return columns_of(COLUMNS, by, {"q": wanted} if wanted else {}, words="name")


def value_of(stats: QueueStats, key: str) -> Any:
    """Return what a column sorts a queue by; a limit that is not set comes last among numbers from the largest down."""
    settings = get_settings().queues.get(stats.queue)
    if key == "name":
        return stats.queue.casefold()
    if key in ("max_concurrency", "max_length"):
        return getattr(settings, key) or 0 if settings else 0
    return stats.latency if key == "latency" else stats.counts.get(key, 0)


def queue_row(stats: QueueStats) -> dict[str, Any]:
    return {"stats": stats, "settings": get_settings().queues.get(stats.queue)}


def queue_page(console: Console, queue: str) -> HttpResponse:
    """GET: show one queue.  POST: pause or resume it, or one job type in it."""
    queue = unquote(queue)
    if queue not in console.counted.names:
        raise Http404
    if console.request.method == "POST":
        return post(console, queue)
    return show(console, queue, PauseForm())


def show(console: Console, queue: str, form: PauseForm) -> HttpResponse:
    (stats,) = browse.queue_stats([queue])
    period = read_period(console.request.GET, "hour")
    by = read_sorting(console.request.GET, list(TYPE_COLUMNS))
    kinds = types(stats, by)
    context = queue_row(stats) | {
        "queue": queue,
        "period": period,
        "charts": charts(console, queue, period),
        "types": with_sparklines(queue, kinds[:TYPES]),
        "more_types": max(0, len(kinds) - TYPES),
        "type_columns": columns_of(TYPE_COLUMNS, by, {"period": period} if period != "hour" else {}, words="name"),
        "names": registry.names(),
        "form": form,
        "may_pause": console.may(permissions.PAUSE),
        "pause_for": PAUSE_FOR.items(),
    }
    return console.render("queue.html", queue, context, here="queues")


def charts(console: Console, queue: str, period: str) -> list[Chart]:
    """Return the charts of one queue: from its minutes, which are kept for a day; of a week from samples."""
    if period == "week":
        return trends.charts(queue_trends([queue], period)[queue], console.releases)
    return overview.charts(browse.series(period, [queue]), console.releases)


def with_sparklines(queue: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the trend of the last day to the rows of job types."""
    drawn = type_trends(queue, [row["name"] for row in rows], "day") if rows else {}
    return [row | {"spark": trends.sparkline(drawn[row["name"]])} for row in rows]


def types(stats: QueueStats, by: Sorting) -> list[dict[str, Any]]:
    """Return the totals per job type, busiest first if they are not sorted otherwise."""
    found: dict[str, dict[str, Any]] = {}
    for key, total in stats.totals.items():
        event, colon, name = key.partition(":")
        if colon:
            found.setdefault(name, {"name": name, "pause": stats.paused_types.get(name)})[event] = total
    for name, pause in stats.paused_types.items():
        found.setdefault(name, {"name": name, "pause": pause})
    rows = sorted(found.values(), key=lambda kind: -kind.get("enqueued", 0))
    if by.key:
        rows.sort(key=lambda kind: kind.get(by.key, 0), reverse=by.descending)
    return rows


def post(console: Console, queue: str) -> HttpResponse:
    """Pause or resume; `name` is the job type, empty for the whole queue."""
    console.require(permissions.PAUSE)
    data = console.request.POST
    form = PauseForm(data)
    if data.get("do") not in {"pause", "resume"}:
        return HttpResponseBadRequest(_("There is no such action for queues."), content_type="text/plain")
    if not form.is_valid():
        return show(console, queue, form)
    name, reason, until = form.cleaned_data["name"] or None, form.cleaned_data["reason"], form.cleaned_data["until"]
    if pause_for := form.cleaned_data["for"]:
        until = end_of(pause_for, get_store().now())
    back = console.url("paused") if data.get("back") == "paused" else console.url("queue", queue)
    try:
        if data["do"] == "pause":
            by = console.user
            if not operations.pause(queue, name=name, reason=reason, until=until, by=by):
                return console.back(back, messages.WARNING, labels.unchanged("pause"))
            console.log("pause", ObjectKind.QUEUE, queue, job_type=name, reason=reason, until=until)
        else:
            paused = operations.resume(queue, name=name)
            if paused is None:
                return console.back(back, messages.WARNING, labels.unchanged("resume"))
            console.log("resume", ObjectKind.QUEUE, queue, job_type=name, paused=pause_details(paused))
    except JobsError as error:
        form.add_error(None, str(error))
        return show(console, queue, form)
    what = _("%(name)s in %(queue)s") % {"name": name, "queue": queue} if name else queue
    said = _("Paused: %(what)s") if data["do"] == "pause" else _("Resumed: %(what)s")
    if data["do"] == "pause" and until:
        said = _("Paused until %(time)s: %(what)s")
    return console.back(back, messages.SUCCESS, said % {"what": what, "time": exact(until)})
