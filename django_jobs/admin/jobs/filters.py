"""What a list of jobs is filtered and sorted by, as its address says it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from django_jobs import browse
from django_jobs.admin.common import labels
from django_jobs.admin.common.console import Console
from django_jobs.admin.common.sorting import Column
from django_jobs.browse import Match
from django_jobs.core.values import State
from django_jobs.exceptions import InvalidQuery
from django_jobs.stores.values.lists import TIMED

#: Maximum length of a filter: a name has up to 200 characters, and so has an id.
FILTER_LENGTH = 300
#: Maximum length of a time that a message repeats.
TIME_LENGTH = 40


class Filter(NamedTuple):
    """The filters and the order of one list."""

    match: Match
    #: "asc", "desc", or "" for the usual order of the state.
    order: str
    #: what is wrong with the address, one sentence each; then nothing is listed and nothing is done.
    problems: list[str]
    #: the two times as the form shows them.
    times: dict[str, str]
    #: the query as the form shows it.
    text: str

    @property
    def reverse(self) -> bool | None:
        """The order as `browse.page` takes it."""
        return self.order == "desc" if self.order else None

    @property
    def query(self) -> dict[str, str]:
        """The same list in the form of a URL's query."""
        return query_of(self.match) | ({"order": self.order} if self.order else {})


def read_filter(console: Console, state: State) -> Filter:
    """Read the filters in the URL; for the key of an error its signature, if this user may see it."""
    query = console.request.GET
    queue, name, error = (query.get(key, "")[:FILTER_LENGTH].strip() for key in ("queue", "name", "error"))
    text = query.get("q", "").strip()
    if error and console.sees_arguments and state in browse.GROUPED:
        found = (each.signature for each in console.kinds(state, queue) if browse.error_key(each.signature) == error)
        error = next(found, error)
    problems, bounds = list[str](), dict[str, int]()
    given = {key: query.get(key, "").strip() for key in ("from", "until")}
    for key, value in given.items():
        try:
            bounds[key] = read_time(value)
        except ValueError:
            bounds[key] = 0
            problems.append(
                _("“%(value)s” is not a time. Write it like 2026-01-31T08:30.") % {"value": value[:TIME_LENGTH]}
            )
    if any(given.values()) and state not in TIMED:
        problems.append(_("Jobs in this state cannot be filtered by time."))
    elif bounds["from"] and bounds["until"] and bounds["from"] >= bounds["until"]:
        problems.append(_("The time “from” must be before the time “until”."))
    order = query.get("order", "") if state in TIMED else ""
    times = {key: local_text(bounds[key])[:19] if bounds[key] else value[:TIME_LENGTH] for key, value in given.items()}
    tag = query.get("tag", "")[:FILTER_LENGTH].strip()
    match = Match(queue, name, "", error, console.sees_arguments, bounds["from"], bounds["until"], tag)
    try:
        match = match.asked(text, state)
        if match.queue and match.queue not in (queue, *console.counted.names):
            problems.append(_("There is no queue “%(queue)s”.") % {"queue": match.queue})
    except InvalidQuery as wrong:
        problems.append(str(wrong))
    return Filter(match, order if order in ("asc", "desc") else "", problems, times, text if problems else match.query)


def read_time(text: str) -> int:
    """Return a time in an address in ms, to the second; 0 for "".  Without an offset it is in the current time zone.

    Raises ValueError."""
    if not text:
        return 0
    at = parse_datetime(text)
    if at is None:
        day = parse_date(text)
        if day is None:
            raise ValueError(text)
        at = datetime(day.year, day.month, day.day)
    try:
        at = timezone.make_aware(at) if timezone.is_naive(at) else at
        seconds = int(at.astimezone(UTC).timestamp())
    except OverflowError as error:
        raise ValueError(text) from error
    if seconds < 1:
        raise ValueError(text)
    return seconds * 1000


def local_text(ms: int) -> str:
    """Return a time as `read_time` reads it, in the current time zone.  A time that comes a second time, when summer
    time ends, has its offset."""
    at = timezone.localtime(datetime.fromtimestamp(ms / 1000, UTC))
    return at.isoformat() if at.fold else at.replace(tzinfo=None).isoformat()


def query_of(match: Match) -> dict[str, str]:
    """Return the filters in the form of a URL's query."""
    error = match.error if browse.is_error_key(match.error) else browse.error_key(match.error)
    values = {
        "queue": match.queue,
        "name": match.name,
        "tag": match.tag,
        "q": match.query,
        "error": error if match.error else "",
    }
    values |= {"from": local_text(match.since) if match.since else ""}
    values |= {"until": local_text(match.before) if match.before else ""}
    return {key: value for key, value in values.items() if value}


def times_text(state: State, match: Match) -> str:
    """Return the stretch of time that jobs are filtered by, with the name of the time; "" for any time."""
    return f"{labels.TIMES[state]}: {labels.span_text(match.since, match.before)}" if match.span else ""


def headings(state: State, columns: list[str], chosen: Filter, *, searched: bool) -> list[Column]:
    """Return the headings of a list: the time of the state sorts it, because the store keeps the jobs in its order.

    `searched`: the jobs come in the order in which a search found them."""
    first, *others = columns
    rest = [Column(label) for label in others]
    if state not in TIMED or searched:
        return [Column(first), *rest]
    descending = chosen.reverse if chosen.reverse is not None else browse.newest_first(state)
    query = query_of(chosen.match)
    if descending is browse.newest_first(state):
        query["order"] = "asc" if descending else "desc"
    return [Column(first, f"?{urlencode(query)}", "descending" if descending else "ascending"), *rest]


def context_of(state: State, chosen: Filter) -> dict[str, Any]:
    return {
        "match": chosen.match,
        "q": chosen.text,
        "problems": chosen.problems,
        "times": chosen.times,
        "time_label": labels.TIMES.get(state, ""),
        "zone": timezone.get_current_timezone_name(),
        "order": chosen.order,
        "filtered": bool(chosen.match.queue or chosen.match.needs_scan or chosen.match.span or chosen.problems),
    }
