"""The decoder of what is read from the store: text → values that every reader can use.

Another version, another program or a person may have written any text there.  What comes out of this module is safe to
compare, to add, to show and to send: numbers fit into 64 bits, JSON has no NaN and is not deeper than readers may
recurse, every text can be encoded, and a field has the type that its class declares.  For everything else these
functions raise Unreadable, or return the value that the caller chose for it.  Callers do not check types themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from math import isfinite, nan
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")

#: The largest number that is believed: databases and C have no larger one.
LARGEST = 2**63 - 1
#: The latest time that is believed, ms: the beginning of the year 9999.  Time zones can still move it.
LATEST = 253_370_764_800_000
#: Levels of JSON.  Readers recurse, and Python stops them at a thousand calls.  Arguments have at most a hundred:
#: MAX_DEPTH in arguments.py, times up to three in the JSON of a tagged value.
DEEPEST = 128
#: In the text of a half of a surrogate pair, which has no encoding.
_SURROGATE = ("\\ud", "\\uD")


#: Where it is noted what could not be read, if somebody wants to know.
_reasons: ContextVar[list[str] | None] = ContextVar("reasons", default=None)


@contextmanager
def noticing() -> Iterator[list[str]]:
    """Collect why values could not be read in this block, also where a caller put another value in their place."""
    reasons: list[str] = []
    token = _reasons.set(reasons)
    try:
        yield reasons
    finally:
        _reasons.reset(token)


def notice(why: str) -> None:
    """Tell the block of `noticing`, if there is one, that a value could not be read."""
    if (reasons := _reasons.get()) is not None:
        reasons.append(why)


class Unreadable(ValueError):
    """A stored value is not one that this package writes."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        notice(why)


def _no_constant(name: str) -> None:
    raise Unreadable(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise Unreadable(f"{text[:20]} is too large")
    return number


_parse = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode


def loads(text: bytes | str) -> Any:
    """Return the value of a JSON text.  Raises Unreadable.

    A half of a surrogate pair becomes a question mark."""
    try:
        value = _parse(text if isinstance(text, str) else text.decode())
        _check_depth(value)
        if isinstance(text, bytes):
            text = text.decode()
        if any(mark in text for mark in _SURROGATE):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for each in level
            if type(each) is dict or type(each) is list
            for part in (each.values() if type(each) is dict else each)
        ]
        if not level:
            return
    raise Unreadable(f"the value has more than {DEEPEST} levels")


def loaded(text: bytes | str, otherwise: Any = None) -> Any:
    """Return the value of a JSON text; `otherwise` if it cannot be read."""
    try:
        return loads(text)
    except Unreadable:
        return otherwise


def read_number(text: bytes | str | float) -> int:
    """Return a count or a time of the store, which may be a score; 0 for what is no number.  One that is too large is
    the largest."""
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        notice(f"{text!r:.100} is no number")
        return 0
    return int(max(-LARGEST, min(LARGEST, number)))


def read_count(text: bytes | str | float) -> int:
    """Return a number that is not negative: a sum of such numbers is 0 only if all are."""
    return max(0, read_number(text))


def whole(text: bytes | str) -> int:
    """Return the number that these digits are.  Raises Unreadable."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise Unreadable(f"{text[:40]!r} is no number")


def moment(text: bytes | str) -> int:
    """Return a time, ms.  Raises Unreadable for one that no calendar has."""
    if (at := whole(text)) <= LATEST:
        return at
    raise Unreadable(f"{at} is no time")


def count_of(value: Any) -> int:
    """Return a value of JSON that is a number and not negative.  Raises Unreadable."""
    if is_count(value):
        return value
    raise Unreadable(f"{value!r:.100} is no number")


def texts_in(value: Any) -> list[str]:
    """Return a value of JSON that is a list of texts.  Raises Unreadable."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise Unreadable(f"{value!r:.100} is no list of texts")


def list_of(value: Any, kind: type = object) -> list[Any]:
    """Return what a list of JSON has of this type; an empty list for what is no list."""
    return [each for each in value if isinstance(each, kind)] if isinstance(value, list) else []


def running_in(info: Mapping[str, Any]) -> list[Any]:
    """Return the jobs that a worker says it runs, as it describes them."""
    return [job for child in list_of(info.get("children"), dict) for job in list_of(child.get("jobs"))]


def is_count(value: Any, most: int = LARGEST) -> TypeGuard[int]:
    """Tell whether a value of JSON is a number from 0 to `most`."""
    return type(value) is int and 0 <= value <= most


def is_moment(value: Any) -> TypeGuard[int]:
    """Tell whether a value of JSON is a time, ms."""
    return is_count(value, LATEST)


#: The name of a type, as a class declares a field → whether a value of JSON has it.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and -LARGEST <= value <= LARGEST,
    "float": lambda value: type(value) in (int, float),
    "str": lambda value: type(value) is str,
}


@cache
def _types_of(kind: type) -> dict[str, list[Callable[[Any], bool]]]:
    return {
        name: [_CHECKS[each] for each in _text_of(declared).split(" | ") if each in _CHECKS]
        for name, declared in kind.__annotations__.items()
    }


def _text_of(declared: Any) -> str:
    return str(getattr(declared, "__forward_arg__", declared))  # a NamedTuple wraps the text


def typed(kind: Callable[..., T], given: Any) -> T:
    """Return a value of a NamedTuple or dataclass, made of an object of JSON.  Raises Unreadable if a field has another
    type than the class declares, is missing or is not known.  A field that is no plain value is not checked."""
    check_fields(kind, given)
    try:
        return kind(**given)
    except TypeError as error:
        raise Unreadable(str(error)) from error


def check_fields(kind: Any, given: Any) -> None:
    """Raise Unreadable unless these fields have the types that the class declares."""
    if not isinstance(given, Mapping):
        raise Unreadable(f"{given!r:.100} is no object")
    types = _types_of(kind)
    for name, value in given.items():
        checks = types.get(name)
        if checks is None:
            raise Unreadable(f"{name!r:.100} is not known")
        if checks and not any(check(value) for check in checks):
            raise Unreadable(f"{name} is {value!r:.100}")
