"""A query's text → its terms.  Pure: knows no job.

    state:dead name:shop.pay arg.customer_id=42 tag:eu "connection reset"

Terms are ANDed.  A value ends at a space, unless it is a JSON text in quotes.  The value of an argument is JSON.  Words
that are no term are searched for as text; words that stand together are one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django_jobs.core.sensitive import HIDDEN
from django_jobs.core.values import State
from django_jobs.exceptions import InvalidQuery

#: The fields with a value, besides `arg.NAME=VALUE`.
FIELDS = ("name", "queue", "state", "error", "tag", "scope", "id", "worker", "release", "before", "after")
#: A job can have several of these; of any other field, two different values choose nothing.
REPEATED = frozenset({"tag", "before", "after", "arg", "text"})
#: Characters: more cannot be read by a person, and would not fit into an address.
LONGEST = 2_000

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\S+")
_FIELD = re.compile(r"([A-Za-z_]\w*):")
_ARGUMENT = re.compile(r"arg\.([^\s=\"]*)(=?)")
#: What reads like a term, and so cannot stand in a text without quotes.
_LIKE_A_TERM = re.compile(r"[A-Za-z_]\w*:|arg\.|\"")


class Term(NamedTuple):
    """One condition."""

    #: one of FIELDS, "arg" or "text".
    field: str
    #: text; of "arg", a JSON value in its canonical form.
    value: str
    #: the argument, and the keys or indexes inside its value.
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.field == "arg":
            return f"arg.{'.'.join(self.path)}={self.value}"
        if self.field == "text":  # in quotes, so that it stays apart from words before it
            return json.dumps(self.value, ensure_ascii=False)
        return f"{self.field}:{_quoted(self.value)}"

    @property
    def json(self) -> Any:
        """The value of an argument."""
        return _loaded(self.value)


def parse(text: str) -> tuple[Term, ...]:
    """Return the terms of a query.  Raises InvalidQuery, which says where the text cannot be read, and what to do."""
    if len(text) > LONGEST:
        raise InvalidQuery(f"The query has {len(text)} characters. Use at most {LONGEST}.", LONGEST)
    terms = list(_terms(text))
    known: dict[str, Term] = {}
    for term in terms:
        if not is_text(str(term)):
            raise InvalidQuery("The query has half a surrogate pair. Write the whole character.", 0)
        if term.field not in REPEATED and known.setdefault(term.field, term) != term:
            at = text.rfind(f"{term.field}:")
            raise InvalidQuery(f"A job has only one {term.field}: keep one of the terms {term.field}:…", at)
    return tuple(dict.fromkeys(terms))


def is_text(text: str) -> bool:
    """Return whether a text can be stored and sent: JSON can write half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def written(text: str) -> str:
    """Return a text as a query that searches for exactly it."""
    plain = text == text.strip() and text and not any(map(_LIKE_A_TERM.match, text.split()))
    return text if plain else json.dumps(text, ensure_ascii=False)


def concealed(text: str) -> str:
    """Return a query as somebody reads it who may not see arguments: without the values that it asks for."""
    try:
        terms = terms_of(text)
    except InvalidQuery:  # another version has written it
        return HIDDEN
    return " ".join(
        HIDDEN if term.field == "text" else str(term._replace(value=HIDDEN) if term.field == "arg" else term)
        for term in terms
    )


def _quoted(value: str) -> str:
    return value if _WORD.fullmatch(value) and value[0] != '"' else json.dumps(value, ensure_ascii=False)


def _terms(text: str) -> Iterator[Term]:
    at = _skip(text, 0)
    while at < len(text):
        field, argument = _FIELD.match(text, at), _ARGUMENT.match(text, at)
        if argument:
            term, at = _argument(text, at, argument)
        elif field:
            term, at = _field(text, at, field)
        elif text[at] == '"':
            value, at = _string(text, at)
            term = Term("text", value)
        else:
            value, at = _words(text, at)
            term = Term("text", value)
        if term.field != "text" or term.value:
            yield term
        at = _skip(text, at)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _words(text: str, at: int) -> tuple[str, int]:
    """Read the words that stand together."""
    end = at
    while end < len(text):
        start = _skip(text, end)
        word = _WORD.match(text, start)
        if word is None or _LIKE_A_TERM.match(text, start):
            break
        end = word.end()
    return text[at:end], end


def _field(text: str, at: int, found: re.Match[str]) -> tuple[Term, int]:
    field, start = found[1], found.end()
    if field not in FIELDS:
        word = _WORD.match(text, at)
        shown = word[0][:50] if word else field
        quoted = json.dumps(shown, ensure_ascii=False)
        raise InvalidQuery(
            f"There is no field {field!r:.50}. The fields are {', '.join(FIELDS)} and arg.NAME=VALUE. "
            f"For a text, put it in quotes: {quoted}; for a tag, write tag:{shown}",
            at,
        )
    if text[start : start + 1] == '"':
        value, end = _string(text, start)
    else:
        word = _WORD.match(text, start)
        value, end = (word[0], word.end()) if word else ("", start)
    if not value and field != "scope":
        raise InvalidQuery(f"{field}: has no value. Write it directly behind the colon: {field}:VALUE", start)
    _check(field, value, start)
    return Term(field, value), end


def _check(field: str, value: str, at: int) -> None:
    if field == "state" and value not in set(State):
        raise InvalidQuery(f"There is no state {value!r:.50}. The states are {', '.join(State)}.", at)
    if field in ("before", "after"):
        try:
            year = datetime.fromisoformat(value).year
        except ValueError:
            year = 0
        if not 1970 < year < 9999:  # what no time zone carries out of the calendar
            raise InvalidQuery(f"{value!r:.50} is not a time. Write it like {field}:2026-01-31T08:30", at)


def _argument(text: str, at: int, found: re.Match[str]) -> tuple[Term, int]:
    path, end = tuple(found[1].split(".")), found.end()
    if not found[2] or not all(path):
        raise InvalidQuery('Write an argument as arg.NAME=VALUE; VALUE is JSON: 42, true, "text"', at)
    try:
        value, stop = _DECODER.raw_decode(text, end)
        if stop < len(text) and not text[stop].isspace():
            raise ValueError(text[stop])
        canonical = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)  # 1e400 is no number
    except (ValueError, RecursionError):
        word = _WORD.match(text, end)
        quoted = json.dumps(word[0].strip('"')[:50] if word else "", ensure_ascii=False)
        raise InvalidQuery(
            f"The value of {found[0]} is not JSON. Write a number, true, false, null, or a text in quotes: "
            f"{found[0]}{quoted}",
            end,
        ) from None
    return Term("arg", canonical, path), stop


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError:
        raise InvalidQuery(
            'The text in quotes does not end, or is not JSON: write " as \\" and \\ as \\\\', at
        ) from None
    if end < len(text) and not text[end].isspace():
        raise InvalidQuery("Put a space behind the quotes.", end)
    return str(value), end


def _refuse(name: str) -> Any:
    raise ValueError(name)


#: NaN and Infinity are no JSON.
_DECODER = json.JSONDecoder(parse_constant=_refuse)


_loaded = lru_cache(maxsize=256)(json.loads)


@lru_cache(maxsize=256)
def terms_of(text: str) -> tuple[Term, ...]:
    """The same as `parse`, for a text that is read again for each job."""
    return parse(text)


#: What to say to somebody whose query must name a state.
NO_STATE = "The query names no state: add state:dead, or another state, to it."


def state_of(text: str) -> State | None:
    """Return the state that a query asks for."""
    return next((State(term.value) for term in terms_of(text) if term.field == "state"), None)
