"""Schedules from all three sources: next and last runs; run now, pause, resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import schedules
from django_jobs.admin.common import permissions
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.labels import Text
from django_jobs.core import registry
from django_jobs.exceptions import JobsError, StoreError, UnknownSchedule
from django_jobs.models.audit import Kind
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.entry import Entry
from django_jobs.stores import get_store

#: Number of next runs shown for each schedule.
NEXT = 3
#: A sentence about what was done, and the details for the audit log.
Done = tuple[str, dict[str, Any]]
#: Schedules per page: the next runs of each must be computed.
PAGE = 100

SOURCES: dict[str, Text] = {
    "job": gettext_lazy("code"),
    "settings": gettext_lazy("settings"),
    "database": gettext_lazy("database"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One schedule as shown on the page; times in ms."""

    entry: Entry
    source: Text
    #: the page that edits it; "" = it is defined in code or settings.
    url: str
    next_runs: list[int]
    last_run: int
    last_job: str
    queue: str
    paused_at: int
    problem: str


def schedule_list(console: Console) -> HttpResponse:
    """GET: show the schedules.  POST: run one now, pause or resume it."""
    if console.request.method == "POST":
        return post(console)
    everything = schedules.entries()
    try:
        page = max(1, int(console.request.GET.get("p", "1")))
    except ValueError:
        page = 1
    number = max(1, -(-len(everything) // PAGE))
    page = min(page, number)
    context = {
        "rows": rows(console, everything[(page - 1) * PAGE : page * PAGE]),
        "page": page,
        "pages": range(1, number + 1) if number > 1 else [],
        "may_run": console.may(permissions.SCHEDULES),
        "add_url": address(console, "add") if console.request.user.has_perm("django_jobs.add_schedule") else "",
    }
    return console.render("schedules.html", _("Schedules"), context, here="schedules")


def rows(console: Console, entries: list[Entry]) -> list[Row]:
    """Return the rows.  Takes three reads of the store plus one per queue, whatever the number of schedules."""
    store = get_store()
    state, now = schedule_state.read_state(store), schedules.from_ms(store.now())
    last_runs: dict[str, dict[str, int]] = {}
    found = []
    for entry in entries:
        definition = registry.find(entry.job)
        queue = "" if definition is None else definition.queue
        if queue and queue not in last_runs:
            last_runs[queue] = store.last_runs(queue)
        found.append(row(console, entry, queue, last_runs.get(queue, {}).get(entry.id, 0), state, now))
    return found


def row(
    console: Console, entry: Entry, queue: str, last: int, state: schedule_state.ScheduleState, now: datetime
) -> Row:
    """Return the row of one schedule; a broken one shows the reason instead of the next runs."""
    paused, upcoming, problem = state.paused_at(entry) or 0, [], ""
    try:
        runs = schedules.next_runs(entry, NEXT, now)
        if entry.enabled and not paused:
            upcoming = [int(run.timestamp()) * 1000 for run in runs]
    except StoreError:
        raise
    except JobsError as error:
        problem = str(error)
    url = ""
    if entry.source == "database" and console.request.user.has_perm("django_jobs.change_schedule"):
        url = address(console, "change", entry.id.partition(":")[2])
    job = entry.job_id(last) if last else ""
    return Row(entry, SOURCES[entry.source], url, upcoming, last, job, queue, paused, problem)


def address(console: Console, page: str, *arguments: str) -> str:
    """Return the address of a page of the Schedule model's ordinary admin."""
    return reverse(f"admin:django_jobs_schedule_{page}", args=arguments, current_app=console.site.name)


def post(console: Console) -> HttpResponse:
    """Run, pause or resume one schedule."""
    console.require(permissions.SCHEDULES)
    data = console.request.POST
    act = ACTS.get(data.get("do", ""))
    if act is None:
        return HttpResponseBadRequest(_("There is no such action for schedules."), content_type="text/plain")
    try:
        entry = schedules.get_entry(data.get("schedule", ""))
    except UnknownSchedule as error:
        raise Http404 from error
    try:
        said, details = act(entry)
    except StoreError:
        raise
    except JobsError as error:
        return console.back(console.url("schedules"), messages.ERROR, str(error))
    console.log(data["do"], Kind.SCHEDULE, entry.id, **details)
    return console.back(console.url("schedules"), messages.SUCCESS, said)


def run(entry: Entry) -> Done:
    """Run it once, now."""
    handle = schedules.run_now(entry)
    return _("Schedule %(name)s was enqueued as job %(id)s.") % {"name": entry.label, "id": handle.id}, {
        "job": [handle.queue, handle.id]
    }


def pause(entry: Entry) -> Done:
    """Stop its runs until it is resumed."""
    schedules.pause(entry)
    return _("Schedule %(what)s is paused.") % {"what": entry.label}, {}


def resume(entry: Entry) -> Done:
    """Let it run again from now on."""
    schedules.resume(entry)
    return _("Schedule %(what)s is resumed.") % {"what": entry.label}, {}


ACTS: dict[str, Callable[[Entry], Done]] = {"run": run, "pause": pause, "resume": resume}
