"""The jobs of one state: pages, filters, search, groups of errors.  Actions on the chosen jobs are in actions.py."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, QueryDict

from django_jobs import browse
from django_jobs.admin.common import labels
from django_jobs.admin.common.console import Console, page_links, read_number
from django_jobs.admin.jobs import actions, errors, saved
from django_jobs.admin.jobs.filters import Filter, context_of, headings, query_of, read_filter
from django_jobs.admin.jobs.rows import columns, row
from django_jobs.browse import Match
from django_jobs.core import registry
from django_jobs.core.values import FINISHED, JobInfo, State
from django_jobs.operations import searching
from django_jobs.stores import get_store
from django_jobs.stores.values.lists import MOST_TAGS
from django_jobs.stores.values.sizes import grouped

#: Maximum length of a place in a list, as it is in an address.
MARK_LENGTH = 2_000


def job_list(console: Console, state: str) -> HttpResponse:
    """GET: show the list.  POST: apply a verb to the chosen jobs."""
    if state not in set(State):
        raise Http404
    chosen = read_filter(console, State(state))
    if chosen.match.queue not in ("", *console.counted.names) and not chosen.problems:
        raise Http404
    if console.request.method == "POST" and not chosen.problems:
        return saved.post(console, State(state), chosen) or actions.post(console, State(state), chosen.match)
    return show(console, State(state), chosen)


def show(console: Console, state: State, chosen: Filter) -> HttpResponse:
    """Show the list, or the groups of errors; with a filter that cannot be read, what is wrong, and no jobs."""
    query, match = console.request.GET, chosen.match
    grouped = state in browse.GROUPED and "group" in query
    place = query_of(Match(match.queue, match.name, since=match.since, before=match.before))
    by_tag = grouped and query["group"] == "tag"
    context: dict[str, Any] = {
        "state": state.value,
        "explained": labels.EXPLAINED[state],
        "nothing": labels.NOTHING[state],
        **context_of(state, chosen),
        **saved.saved_filters(console, state, chosen),
        "error_key": query_of(match).get("error", ""),
        "may_group": state in browse.GROUPED,
        "grouped": grouped,
        "by_tag": by_tag,
        "tag_group_url": f"?{urlencode({'group': 'tag'} | query_of(Match(match.queue)))}",
        "group_url": f"?{urlencode({'group': 1} | place)}",
        "list_url": f"?{urlencode(place)}",
        "queues": console.counted.names,
        "names": registry.names(),
        "verbs": console.verbs(state),
    }
    if chosen.problems:
        context |= {"total": 0, "grouped": False, "by_tag": False}
    elif by_tag:
        context |= tags(console, state, match)
    elif grouped:
        context |= errors.groups(console, state, match)
    elif match.needs_scan and not is_exact(console, state, match):
        context |= searched(console, state, chosen)
    else:
        context |= paged(console, state, chosen, query)
    status = 400 if chosen.problems else 200
    return console.render("job_list.html", str(labels.STATES[state]), context, here=state.value, status=status)


def is_exact(console: Console, state: State, match: Match) -> bool:
    """Return whether the store finds these jobs at once.  The groups of a tag that this needs are read once for the
    page."""
    by_tag = match.tag and not match.query and state in browse.GROUPED
    return browse.is_exact(state, match, console.groups(state, match) if by_tag else None)


def paged(console: Console, state: State, chosen: Filter, query: QueryDict) -> dict[str, Any]:
    match, reverse = chosen.match, chosen.reverse
    number, after = read_number(query.get("p")), query.get("after", "")[:MARK_LENGTH]
    if match.needs_scan:
        page = browse.selected(state, match, after, console.groups(state, match), reverse=reverse)
    else:
        queue = match.queue or None
        page = browse.page(
            state, queue, number, after, counted=console.counted, span=match.span, reverse=reverse
        )  # fmt: skip
    return {
        "page": page,
        "columns": headings(state, columns(state), chosen, searched=False),
        "rows": [row(info, arguments=console.sees_arguments) for info in page.jobs],
        "total": page.total,
        "page_links": page_links(page.number, page.pages, chosen.query),
        "first_page": f"?{urlencode(chosen.query)}" if after else "",
        "next_page": f"?{urlencode(chosen.query | {'after': page.following})}" if page.following else "",
        **errors.one_error(console, state, chosen),
    }


def searched(console: Console, state: State, chosen: Filter) -> dict[str, Any]:
    """Return what a search has found so far, and the job whose id was typed."""
    match = chosen.match
    found = searching.search([state], match, console.counted)
    jobs = jobs_of(found)
    if state in FINISHED:
        jobs = sorted(jobs, key=lambda info: -info.at)
    names = [match.queue] if match.queue else console.counted.names
    exact = browse.find(match.text, names) if match.text and not match.terms else None
    return {
        "search": found,
        "notes": found.notes.texts(),
        "exact": row(exact, arguments=console.sees_arguments) if exact else None,
        "exact_state": labels.STATES[exact.state] if exact else "",
        "columns": headings(state, columns(state), chosen, searched=True),
        "rows": [row(info, arguments=console.sees_arguments) for info in jobs],
        "total": found.matches,
        "error": errors.shown_error(console, state, match),
    }


def jobs_of(found: browse.Search) -> list[JobInfo]:
    """Return the first jobs that a search has found and that are still in one of its states."""
    first, jobs = found.found[: browse.SHOWN], found.jobs
    if len(jobs) < len(first):
        jobs = [info for queue, ids in grouped(first).items() for info in get_store().get_many(queue, ids)]
    return [info for info in jobs if info.state in found.states]


def tags(console: Console, state: State, match: Match) -> dict[str, Any]:
    """Return how many jobs have each tag, the most frequent first, and how many have tags that are not counted."""
    queues = [match.queue] if match.queue else console.counted.names
    found, uncounted = browse.tag_counts(state, queues)
    shown = found[: errors.GROUPS]
    return {
        "tag_counts": [(each, f"?{urlencode(query_of(Match(match.queue, tag=each.tag)))}") for each in shown],
        "more_groups": max(0, len(found) - errors.GROUPS),
        "uncounted": uncounted,
        "most_tags": MOST_TAGS,
        "group_verbs": errors.GROUP_VERBS,
        "total_of_state": console.counted.counts[state],
    }
