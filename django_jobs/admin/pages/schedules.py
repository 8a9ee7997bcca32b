"""Schedules from all three sources: next and last runs; run now, pause, resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_jobs import schedules
from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.labels import Text
from django_jobs.core.values import Added
from django_jobs.enqueueing.handle import DEFERRED, JobHandle
from django_jobs.exceptions import JobsError, StoreError, UnknownSchedule
from django_jobs.models.audit import ObjectKind, run_details
from django_jobs.schedules import state as schedule_state
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.stores import get_store

#: Number of next runs shown for each schedule.
NEXT = 3
#: What the buttons send → what they do.
ACTS: dict[str, Callable[[ScheduleEntry], JobHandle | bool]] = {
    "run": schedules.run_now,
    "pause": schedules.pause,
    "resume": schedules.resume,
}
#: Schedules per page: the next runs of each must be computed; of the page of a day, all of that day.
PAGE, DAYS = 100, 50

SOURCES: dict[str, Text] = {
    "job": gettext_lazy("code"),
    "settings": gettext_lazy("settings"),
    "database": gettext_lazy("database"),
}


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule as shown on the page; times in ms."""

    entry: ScheduleEntry
    source: Text
    #: the page that edits it; "" = it is defined in code or settings.
    url: str
    next_runs: list[int]
    last_run: int
    last_job: str
    #: of the last job.
    queue: str
    paused_at: int
    problem: str


def schedule_list(console: Console) -> HttpResponse:
    """GET: show the schedules.  POST: run one now, pause or resume it."""
    if console.request.method == "POST":
        return post(console)
    shown, pages = console.part(schedules.entries(), PAGE)
    context = pages | {
        "rows": rows(console, shown),
        "may_run": console.may(permissions.SCHEDULES),
        "add_url": address(console, "add") if console.may("add_schedule") else "",
    }
    return console.render("schedules.html", _("Schedules"), context, here="schedules")


def tonight(console: Console) -> HttpResponse:
    """Show what the schedules did in the last 24 hours, and will do in the next 24."""
    shown, pages = console.part(schedules.entries(), DAYS)
    days = sorted(schedules.days(shown), key=lambda day: day.next[0] if day.next else inf)
    return console.render("tonight.html", _("Tonight and last night"), pages | {"days": days}, here="schedules")


def rows(console: Console, entries: Sequence[ScheduleEntry]) -> list[ScheduleRow]:
    """Return the rows.  Takes two reads of the store, whatever the number of schedules."""
    store = get_store()
    state, now = schedule_state.read_state(store), schedules.from_ms(store.now())
    return [row(console, entry, state, now) for entry in entries]


def row(console: Console, entry: ScheduleEntry, state: schedule_state.ScheduleState, now: datetime) -> ScheduleRow:
    """Return the row of one schedule; a broken one shows the reason instead of the next runs."""
    last, paused, upcoming, problem = state.last_run(entry), state.paused_at(entry) or 0, [], ""
    try:
        runs = schedules.next_runs(entry, NEXT, now)
        if entry.enabled and not paused:
            upcoming = list(map(schedules.to_ms, runs))
    except StoreError:
        raise
    except JobsError as error:
        problem = str(error)
    url = ""
    if entry.source == "database" and console.may("change_schedule"):
        url = address(console, "change", entry.id.partition(":")[2])
    job = entry.job_id(last.at) if last.at else ""
    return ScheduleRow(entry, SOURCES[entry.source], url, upcoming, last.at, job, last.queue, paused, problem)


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
        done = act(entry)
    except StoreError:
        raise
    except JobsError as error:
        return console.back(console.url("schedules"), messages.ERROR, str(error))
    back = console.url("paused") if data.get("back") == "paused" else console.url("schedules")
    if not done:
        return console.back(back, messages.WARNING, labels.unchanged(data["do"]))
    handle = done if isinstance(done, JobHandle) else None
    equal = labels.EQUAL_WAITS.get(handle.added) if handle else None
    if handle and handle.added is Added.DUPLICATE:
        return console.back(back, messages.WARNING, str(equal))
    facts = run_details(handle) if handle else {}
    said = console.log(data["do"], ObjectKind.SCHEDULE, entry.id, name=entry.label, **facts)
    if handle and handle.state == DEFERRED:
        said = _("Schedule %(name)s will be enqueued as job %(id)s after the commit.")
        said %= {"name": entry.label, "id": handle.id}
    return console.back(back, messages.SUCCESS, str(equal or said))
