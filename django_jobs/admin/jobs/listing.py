"""The jobs of one state: pages, filters, search, groups of errors.  Actions on the chosen jobs are in actions.py."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse

from django_jobs import browse, operations
from django_jobs.admin.common import labels
from django_jobs.admin.common.console import Console
from django_jobs.admin.jobs import actions
from django_jobs.admin.jobs.rows import columns, row
from django_jobs.browse import Match
from django_jobs.core import registry
from django_jobs.core.values import State

#: States whose jobs can be grouped by error.
GROUPED = frozenset({State.DEAD, State.RETRY})
#: Maximum length of a filter: a name has up to 200 characters, and so has an id.
FILTER_LENGTH = 300
#: No list has more pages than this; a higher number is a mistake.
LAST_PAGE = 10**9


def job_list(console: Console, state: str) -> HttpResponse:
    """GET: show the list.  POST: apply a verb to the chosen jobs."""
    if state not in set(State):
        raise Http404
    if console.request.method == "POST":
        return actions.post(console, State(state), match_of(console))
    return show(console, State(state))


def match_of(console: Console) -> Match:
    """Return the filters in the URL."""
    query = console.request.GET
    queue, name, text, error = (query.get(key, "")[:FILTER_LENGTH].strip() for key in ("queue", "name", "q", "error"))
    return Match(queue, name, text, error, console.sees_arguments)


def number(text: str | None, default: int = 1) -> int:
    """Return a number in a URL; the default for anything else."""
    return min(int(text), LAST_PAGE) if text and text.isascii() and text.isdigit() and len(text) < 12 else default


def show(console: Console, state: State) -> HttpResponse:
    """Show the list, or the groups of errors."""
    query = console.request.GET
    match = match_of(console)
    known = match.queue in console.counted.names
    if match.queue and not known:
        raise Http404
    grouped = state in GROUPED and "group" in query
    verbs = [verb for verb in operations.VERBS if state in operations.VERBS[verb]]
    context: dict[str, Any] = {
        "state": state.value,
        "explained": labels.EXPLAINED[state],
        "nothing": labels.NOTHING[state],
        "match": match,
        "filtered": bool(match.queue or match.needs_scan),
        "may_group": state in GROUPED,
        "grouped": grouped,
        "group_url": f"?{urlencode({'group': 1} | ({'queue': match.queue} if match.queue else {}))}",
        "queues": console.counted.names,
        "names": registry.names(),
        "verbs": [
            (operations.word_of(verb), labels.verb_label(verb, state), labels.VERBS[verb].destructive)
            for verb in console.allowed(verbs)
        ],
    }
    if grouped:
        context |= groups(console, state, match)
    elif match.needs_scan:
        context |= searched(console, state, match, number(query.get("from"), 0))
    else:
        context |= paged(console, state, match, number(query.get("p")))
    return console.render("job_list.html", str(labels.STATES[state]), context, here=state.value)


def paged(console: Console, state: State, match: Match, page_number: int) -> dict[str, Any]:
    """Return the context of a page of the list."""
    page = browse.page(state, match.queue or None, page_number, counted=console.counted)
    return {
        "page": page,
        "columns": columns(state),
        "rows": [row(info, arguments=console.sees_arguments) for info in page.jobs],
        "total": page.total,
        "page_links": page_links(page, {"queue": match.queue} if match.queue else {}),
    }


def searched(console: Console, state: State, match: Match, start: int) -> dict[str, Any]:
    """Return the jobs that a search found, and the job whose id was typed."""
    found = browse.scan(state, match, start=start, counted=console.counted)
    exact = browse.find(match.text, [match.queue] if match.queue else console.counted.names) if match.text else None
    rows = [row(info, arguments=console.sees_arguments) for info in found.jobs]
    onward = {key: value for key, value in query_of(match).items() if value} | {"from": found.following}
    return {
        "scan": found,
        "exact": row(exact, arguments=console.sees_arguments) if exact else None,
        "exact_state": labels.STATES[exact.state] if exact else "",
        "columns": columns(state),
        "rows": rows,
        "total": found.total,
        "onward": f"?{urlencode(onward)}" if found.following is not None else "",
    }


def groups(console: Console, state: State, match: Match) -> dict[str, Any]:
    """Return the groups of errors, largest first, from a bounded scan."""
    found = browse.error_groups(state, match, counted=console.counted)
    return {
        "groups": [
            (group, f"?{urlencode(query_of(Match(match.queue, error=group.signature)))}") for group in found.groups
        ],
        "found": found,
        "total": found.total,
    }


def query_of(match: Match) -> dict[str, str]:
    """Return the filters in the form of a URL's query."""
    values = {"queue": match.queue, "name": match.name, "q": match.text, "error": match.error}
    return {key: value for key, value in values.items() if value}


def page_links(page: browse.Page, query: dict[str, str]) -> list[tuple[str, str]]:
    """Return (label, address) of the first, the last and the nearby pages; the address is "" for the current page."""
    near = {1, page.pages, *range(max(1, page.number - 3), min(page.pages, page.number + 3) + 1)}
    links: list[tuple[str, str]] = []
    previous = 0
    for at in sorted(near):
        if at > previous + 1:
            links.append(("…", ""))
        links.append((str(at), "" if at == page.number else f"?{urlencode(query | {'p': str(at)})}"))
        previous = at
    return links if page.pages > 1 else []
