"""Queues: length, age, concurrency; pause and resume."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.utils.translation import gettext as _

from django_jobs import browse, operations
from django_jobs.admin.common import permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.forms import PAUSE_FOR, PauseForm, end_of
from django_jobs.admin.jobs.listing import number
from django_jobs.admin.pages import overview
from django_jobs.browse.counts import LIVE_QUEUES
from django_jobs.conf import get_settings
from django_jobs.core import registry
from django_jobs.core.values import QueueStats
from django_jobs.exceptions import JobsError
from django_jobs.formatting import exact
from django_jobs.models.audit import Kind, pause_details
from django_jobs.stores import get_store

#: Maximum job types with totals on the page of a queue.
TYPES = 50


def queue_list(console: Console) -> HttpResponse:
    """Show all queues, a page at a time.  Uses this request's counts, and reads the queues that were not counted."""
    wanted = console.request.GET.get("q", "").strip()[:200]
    names = [name for name in console.counted.names if wanted.casefold() in name.casefold()]
    pages = max(1, -(-len(names) // LIVE_QUEUES))
    at = min(number(console.request.GET.get("p")), pages)
    shown = names[(at - 1) * LIVE_QUEUES : at * LIVE_QUEUES]
    counted = dict(console.counted.queues)
    if missing := [name for name in shown if name not in counted]:
        counted |= {stats.queue: stats for stats in browse.queue_stats(missing)}
    context = {
        "rows": [queue_row(counted[name]) for name in shown],
        "counted_at": console.counted.at,
        "number": len(names),
        "q": wanted,
        "page": at,
        "pages": range(1, pages + 1) if pages > 1 else [],
        "may_pause": console.may(permissions.PAUSE),
        "pause_for": PAUSE_FOR.items(),
    }
    return console.render("queues.html", _("Queues"), context, here="queues")


def queue_row(stats: QueueStats) -> dict[str, Any]:
    """Return a queue and its settings."""
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
    """Show one queue."""
    (stats,) = browse.queue_stats([queue])
    period = "day" if console.request.GET.get("period") == "day" else "hour"
    context = queue_row(stats) | {
        "queue": queue,
        "period": period,
        "charts": overview.charts(browse.series(period, [queue])),
        "types": types(stats),
        "names": registry.names(),
        "form": form,
        "may_pause": console.may(permissions.PAUSE),
        "pause_for": PAUSE_FOR.items(),
    }
    return console.render("queue.html", queue, context, here="queues")


def types(stats: QueueStats) -> list[dict[str, Any]]:
    """Return the totals per job type, busiest first."""
    found: dict[str, dict[str, Any]] = {}
    for key, total in stats.totals.items():
        event, colon, name = key.partition(":")
        if colon:
            found.setdefault(name, {"name": name, "pause": stats.paused_types.get(name)})[event] = total
    for name, pause in stats.paused_types.items():
        found.setdefault(name, {"name": name, "pause": pause})
    return sorted(found.values(), key=lambda kind: -kind.get("enqueued", 0))[:TYPES]


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
    try:
        if data["do"] == "pause":
            by = console.request.user.get_username()
            operations.pause(queue, name=name, reason=reason, until=until, by=by)
            console.log("pause", Kind.QUEUE, queue, job_type=name, reason=reason, until=until)
        else:
            paused = operations.resume(queue, name=name)
            console.log("resume", Kind.QUEUE, queue, job_type=name, paused=pause_details(paused))
    except JobsError as error:
        form.add_error(None, str(error))
        return show(console, queue, form)
    what = _("%(name)s in %(queue)s") % {"name": name, "queue": queue} if name else queue
    said = _("Paused: %(what)s") if data["do"] == "pause" else _("Resumed: %(what)s")
    if data["do"] == "pause" and until:
        said = _("Paused until %(time)s: %(what)s")
    return console.back(console.url("queue", queue), messages.SUCCESS, said % {"what": what, "time": exact(until)})
