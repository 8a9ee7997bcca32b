"""What a list of jobs takes over HTTP besides words: a stretch of time, and the place where a page begins."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime

from django_jobs import browse
from django_jobs.api.common.problems import Kind, Problem
from django_jobs.core.values import State
from django_jobs.stores.values.lists import TIMED, Span


def span_of(state: State, since: datetime | None, until: datetime | None) -> Span | None:
    """Return the stretch of time between two times; None if none is given.  Raises Problem."""
    if since is None and until is None:
        return None
    if state not in TIMED:
        raise Problem(Kind.INVALID, f"Jobs that are {state} have no `from` and `until`: they are in no order of time.")
    bounds = []
    for name, at in (("from", since), ("until", until)):
        try:
            ms = 0 if at is None else int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except (OverflowError, ValueError):
            ms = -1
        if ms < 0:
            raise Problem(Kind.INVALID, f"`{name}` is out of range.")
        bounds.append(ms)
    if until is not None and bounds[0] >= bounds[1]:
        raise Problem(Kind.INVALID, "`from` must be before `until`.")
    return Span(*bounds)


def not_a_cursor(cursor: str) -> Problem:
    """Return the answer to a text that is no cursor of a list."""
    detail = f"{cursor!r:.200} is not a cursor of this list. Send the `cursor` of the previous page."
    return Problem(Kind.INVALID, detail)


def write_cursor(position: browse.Position) -> str:
    """Return a position as text; clients only send it back."""
    return urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def read_cursor(text: str) -> browse.Position | None:
    """Read what write_cursor wrote; None for an empty text.  Raises ValueError."""
    if not text:
        return None
    values = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not (isinstance(values, list) and [type(value) for value in values] == [int, str]):
        raise ValueError("These are not a time and a mark.")
    return browse.Position(*values)
