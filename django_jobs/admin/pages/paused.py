"""What is held, and the buttons to resume it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs.admin.common import labels, permissions
from django_jobs.admin.common.console import Console
from django_jobs.core.values import State
from django_jobs.operations.matching import BEHIND
from django_jobs.paused import Paused, pauses

#: Pauses per page.
PAGE = 100


def paused_list(console: Console) -> HttpResponse:
    """Show everything that is held.  The buttons post to the page of the queue, or to that of the schedules."""
    shown, pages = console.part(everything := pauses(), PAGE)
    context = pages | {
        "rows": [row(console, each) for each in shown],
        "total": len(everything),
        "may_pause": console.may(permissions.PAUSE),
        "may_run": console.may(permissions.SCHEDULES),
    }
    return console.render("paused.html", _("Paused"), context, here="paused")


def row(console: Console, each: Paused) -> dict[str, Any]:
    """Return a pause, its name, its page, and the lists of what waits behind it."""
    kinds = {"queue": _("Queue"), "job type": _("Job type"), "schedule": _("Schedule")}
    url = console.url("schedules") if each.kind == "schedule" else console.url("queue", each.queue)
    chosen = urlencode({"queue": each.queue} | ({"name": each.name} if each.kind == "job type" else {}))
    states: list[State] = list(BEHIND) if each.waiting else []
    return {
        "paused": each,
        "kind": kinds[each.kind],
        "url": url,
        "lists": [(labels.STATES[state], f"{console.url('jobs', state.value)}?{chosen}") for state in states],
    }
