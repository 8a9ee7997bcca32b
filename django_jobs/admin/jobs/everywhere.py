"""The search over all states: one field on every page, for an id, a name, an argument or an error."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_jobs import browse
from django_jobs.admin.common import labels
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs.listing import jobs_of
from django_jobs.admin.jobs.page import why_of
from django_jobs.admin.jobs.rows import ListRow, error_cell, row
from django_jobs.browse import Match
from django_jobs.browse.query.parsing import state_of
from django_jobs.conf import get_settings
from django_jobs.core.values import JobInfo, State
from django_jobs.exceptions import InvalidQuery
from django_jobs.operations import searching


def search_page(console: Console) -> HttpResponse:
    """Show the jobs of all states and queues that have this text, and first the job with exactly this id."""
    text = console.request.GET.get("q", "").strip()
    context: dict[str, Any] = {"q": text, "find": text}
    try:
        match = Match(arguments=console.sees_arguments).asked(text)
    except InvalidQuery as wrong:
        context |= {"q": "", "problem": str(wrong)}
        return console.render("search.html", _("Search"), context, here="search", status=400)
    if text:
        state = state_of(match.terms)
        states = list(State) if state is None else [state]
        is_text = match == Match(text=match.text, arguments=match.arguments)
        exact = browse.find(match.text, console.counted.names) if is_text else None
        found = searching.search(states, match, console.counted)
        others = [info for info in jobs_of(found) if exact is None or (info.queue, info.id) != (exact.queue, exact.id)]
        context |= {
            "search": found,
            "notes": found.notes.texts(),
            "archive": get_settings().archive is not None and console.sees_archive and urlencode({"q": text}),
            "exact": shown(console, exact) if exact else None,
            "why": why_of(console, exact) if exact else None,
            "rows": [shown(console, info) for info in others],
            "more": max(0, found.matches - len(others) - (exact is not None)),
            "states": [
                (state.value, number, f"{console.url('jobs', state.value)}?{urlencode({'q': text})}")
                for state in State
                if (number := found.by_state.get(state, 0))
            ],
        }
    return console.render("search.html", _("Search"), context, here="search")


def shown(console: Console, info: JobInfo) -> dict[str, Any]:
    """Return a job as a row whose columns suit every state: its first time, with its heading, and its last error."""
    own: ListRow = row(info, arguments=console.sees_arguments)
    return {
        "row": own,
        "state": info.state.value,
        "label": labels.STATES[info.state],
        "when": own.cells[0],
        "error": error_cell(own.info),
    }
