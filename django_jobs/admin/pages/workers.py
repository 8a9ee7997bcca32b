"""Workers: their hosts, running jobs and charts; stop a worker."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.utils.translation import gettext as _

from django_jobs import operations
from django_jobs.admin.common import permissions
from django_jobs.admin.common.addresses import unquote
from django_jobs.admin.common.charts import read_period
from django_jobs.admin.common.console import Console
from django_jobs.admin.pages import trends
from django_jobs.admin.pages.worker_rows import worker_row, worker_rows
from django_jobs.browse.trends import worker_trend
from django_jobs.models.audit import ObjectKind
from django_jobs.stores import get_store


def worker_list(console: Console) -> HttpResponse:
    """GET: show the workers.  POST: send a command to one of them."""
    if console.request.method == "POST":
        return post(console)
    store = get_store()
    context = {
        "workers": worker_rows(store.workers(silent=True), store.now()),
        "may_stop": console.may(permissions.WORKERS),
    }
    return console.render("workers.html", _("Workers"), context, here="workers")


def worker_page(console: Console, worker: str) -> HttpResponse:
    """Show one worker and its charts."""
    name = unquote(worker)
    found = next((each for each in get_store().workers(silent=True) if each.name == name), None)
    if found is None:
        raise Http404
    period = read_period(console.request.GET, "hour")
    context = {
        "worker": worker_row(found),
        "period": period,
        "charts": trends.charts(worker_trend(found, period), console.releases),
        "may_stop": console.may(permissions.WORKERS),
    }
    return console.render("worker.html", name, context, here="workers")


def post(console: Console) -> HttpResponse:
    """Ask for confirmation, then send the command."""
    console.require(permissions.WORKERS)
    data = console.request.POST
    worker, command = data.get("worker", ""), data.get("command", "")
    if command not in {"stop", "quiet"}:
        return HttpResponseBadRequest(_("There is no such command for workers."), content_type="text/plain")
    if "confirmed" not in data:
        title = _("Stop this worker?") if command == "stop" else _("Let this worker take no more jobs?")
        return console.render("stop_worker.html", title, {"worker": worker, "command": command}, here="workers")
    if not operations.command_worker(worker, command):
        said = _("There is no worker %(name)s any more.") % {"name": worker}
        return console.back(console.url("workers"), messages.WARNING, said)
    said = console.log(command, ObjectKind.WORKER, worker)
    return console.back(console.url("workers"), messages.SUCCESS, said)
