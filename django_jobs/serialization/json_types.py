"""Values that JSON does not have, as objects of one key: `{"$date": "2026-03-29"}`.  The slow path of arguments.py."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Model
from django.utils.functional import LazyObject, Promise

from django_jobs.core.placeholders import PREVIOUS, StepResult, are_allowed
from django_jobs.exceptions import PayloadError
from django_jobs.serialization.model_references import ModelReference, dump_reference, read_reference

_AS_THEY_ARE = frozenset({str, bool, type(None)})
_KEYS = frozenset({str, int, bool, type(None)})
#: From this size on, Python refuses to write an int as decimal digits (sys.int_info.default_max_str_digits = 4300).
_BIG_INT_BITS = 14_000


def tag(value: Any, path: str, depth: int, *, ordered: bool = False) -> Any:
    """Return `value` as JSON values.  `depth` more containers may be nested; with `ordered`, equal dicts give equal
    lists.

    Raises PayloadError naming `path` for a value that cannot be stored.
    """
    kind = type(value)
    if kind is str:
        return _checked_text(value, path)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        return value if value.bit_length() < _BIG_INT_BITS else {"$int": hex(value)}
    if kind is float:
        if math.isfinite(value):
            return value
        raise PayloadError(f"{path} is {value}, which is not a JSON number. Pass None or text instead.")
    if kind in (list, tuple, dict):
        if depth <= 0:
            raise PayloadError(f"{path} is nested too deeply (or contains itself). Pass the id of stored data instead.")
        return _tag_container(value, path, depth - 1, ordered)
    if kind in _WRITERS:
        name, write = _WRITERS[kind]
        return {f"${name}": write(value, path)}
    if isinstance(value, Model):
        return {"$model": dump_reference(value, path)}
    if (plain := _plain(value)) is not value:
        return tag(plain, path, depth, ordered=ordered)
    raise PayloadError(
        f"{path} is of type {kind.__module__}.{kind.__qualname__}, which cannot be stored. {_remedy(value)}"
    )


def untag(value: Any) -> Any:
    """Return the value that `tag` wrote, with a ModelReference for each instance.

    Raises PayloadError for an unknown or malformed tag."""
    if type(value) is list:
        return [untag(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((name, content),) = value.items()
        if name[:1] == "$":
            return _untag_object(name[1:], content)
    return {key: untag(item) for key, item in value.items()}


def _tag_container(value: Any, path: str, depth: int, ordered: bool) -> Any:
    if type(value) is not dict:
        items = [tag(item, f"{path}[{i}]", depth, ordered=ordered) for i, item in enumerate(value)]
        return items if type(value) is list else {"$tuple": items}
    pairs, has_other_keys = [], False
    for given, item in value.items():
        key = given if type(given) in _KEYS else _plain(given)
        if type(key) is str:
            _checked_text(key, f"a key of {path}")
            has_other_keys = has_other_keys or key[:1] == "$"
        elif type(key) in _KEYS:
            has_other_keys = True
        else:
            raise PayloadError(f"{path} has the key {key!r} of type {type(key).__name__}. Use text, int, bool or None.")
        pairs.append([key, tag(item, f"{path}[{key!r}]", depth, ordered=ordered)])
    if has_other_keys:
        return {"$dict": sorted(pairs, key=_first) if ordered else pairs}
    return dict(pairs)


def _untag_object(name: str, content: Any) -> Any:
    try:
        if name == "tuple":
            return tuple(untag(item) for item in content)
        if name == "dict":
            return {key: untag(item) for key, item in content}
        return _READERS[name](content)
    except PayloadError:
        raise
    except (KeyError, ValueError, TypeError, ArithmeticError) as error:
        raise PayloadError(
            f"The stored value {{'${name}': {str(content)[:100]!r}}} cannot be read: {error!r}"
        ) from error


def _checked_text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{path} is text that UTF-8 cannot hold (a lone surrogate): {error.reason}.") from error
    return value


def _plain(value: Any) -> Any:
    """Return the plain value that an instance of a subclass equals, or that a lazy object stands for; else `value`.

    Members of enums of text or numbers, safe strings, named tuples, an OrderedDict, lazy translations (in the language
    that is active now), `request.user`."""
    if isinstance(value, Promise):
        value = str(value)
    elif issubclass(type(value), LazyObject):
        _ = value.__class__  # makes it
        return value._wrapped
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    return value


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__pos__),
    (float, float.__pos__),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
)


def _remedy(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return "Pass a sorted list."
    return "Pass plain values, or the id of something that is stored."


def _first(pair: list[Any]) -> str:
    return f"{type(pair[0]).__name__} {pair[0]}"


# -- one writer and one reader per type ------------------------------------------------------------


def _write_moment(value: datetime | time, path: str) -> Any:
    """Return text with an offset, or [text, zone name, fold] if the offset alone would lose information."""
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo):
        if zone.key is None:
            raise PayloadError(f"{path} has a time zone without a name. Use ZoneInfo('Area/City') or UTC.")
        return [value.replace(tzinfo=None, fold=0).isoformat(), zone.key, value.fold]
    if value.fold:
        return [value.replace(fold=0).isoformat(), None, 1]
    if zone is not None and value.utcoffset() is None:
        raise PayloadError(f"{path} has a time zone without an offset. Use ZoneInfo('Area/City') or UTC.")
    return value.isoformat()


def _read_moment(kind: type[datetime] | type[time]) -> Callable[[Any], Any]:
    def read(content: Any) -> datetime | time:
        if isinstance(content, str):
            return kind.fromisoformat(content)
        text, zone, fold = content
        value = kind.fromisoformat(text).replace(fold=fold)
        return value.replace(tzinfo=ZoneInfo(zone)) if zone is not None else value

    return read


def _write_step(value: Any, path: str) -> Any:
    """Return the number of the step that is named; -1 while it has none."""
    if not are_allowed():
        raise PayloadError(
            f"{path} is {value!r}, which exists only inside a workflow. Pass it to a signature: task.s(…)."
        )
    return getattr(getattr(value, "step", None), "number", -1)


def _no_result(content: Any) -> Any:
    raise PayloadError(f"The result of another step is missing. {content}")


def _write_decimal(value: Decimal, path: str) -> str:
    if not value.is_finite():
        raise PayloadError(f"{path} is Decimal('{value}'): not a number. Pass None or text instead.")
    return str(value)


def _read_timedelta(content: Any) -> timedelta:
    days, seconds, microseconds = content
    return timedelta(days, seconds, microseconds)


_WRITERS: dict[type, tuple[str, Callable[[Any, str], Any]]] = {
    datetime: ("datetime", _write_moment),
    date: ("date", lambda value, path: value.isoformat()),
    time: ("time", _write_moment),
    timedelta: ("timedelta", lambda value, path: [value.days, value.seconds, value.microseconds]),
    Decimal: ("decimal", _write_decimal),
    UUID: ("uuid", lambda value, path: str(value)),
    bytes: ("bytes", lambda value, path: base64.b64encode(value).decode()),
    ModelReference: ("model", lambda value, path: value.written),
    StepResult: ("step", _write_step),
    type(PREVIOUS): ("step", _write_step),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": _read_moment(datetime),
    "date": date.fromisoformat,
    "time": _read_moment(time),
    "timedelta": _read_timedelta,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda content: base64.b64decode(content, validate=True),
    "int": lambda content: int(content, 16),
    "model": read_reference,
    "step": lambda content: _no_result(f"It is that of step {content}."),
    "absent": _no_result,
}
