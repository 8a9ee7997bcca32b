"""Arguments and results ⇄ JSON bytes.  Exact: a value that was stored and read has the same type and value.

The C encoder writes plain JSON values as they are.  Values that JSON does not have are written as an object with one
key that starts with "$": see json_types.py.  A user's dict with such a key is written as pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django_jobs.exceptions import PayloadError
from django_jobs.serialization.json_types import tag, untag
from django_jobs.serialization.model_references import load_references

#: Limit of nested containers.  Deeper values are usually mistakes, and readers recurse.
MAX_DEPTH = 32

_SCALARS = frozenset({str, int, float, bool, type(None)})
_STR = frozenset({str})


def _compact_encoder() -> Callable[[Any], str]:
    """Return an encoder for compact JSON (UTF-8), shared by all calls: JSONEncoder.encode makes one per call (2 µs)."""
    general = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False)
    # None if Python has no C accelerator.
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return general.encode
    text = json.encoder.encode_basestring
    chunks = make(None, general.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _compact_encoder()
_encode_sorted = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False, sort_keys=True).encode
_NO_ARGUMENTS = b"[[],{}]"
_decode = json.JSONDecoder().raw_decode


def dump(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the JSON of a call: `[[positional…], {keyword…}]`.

    Raises PayloadError with the place of the value (`kwargs['items'][3]`) if a value cannot be stored.
    """
    if not args and not kwargs:
        return _NO_ARGUMENTS
    if _is_plain(args, 0) and (not kwargs or _is_plain(kwargs, 0)):
        try:
            return _encode((args, kwargs)).encode()
        except (ValueError, RecursionError):  # NaN, a lone surrogate or a huge int: the slow path names or tags it
            pass
    positional = [tag(value, f"args[{i}]", MAX_DEPTH) for i, value in enumerate(args)]
    keyword = tag(dict(kwargs), "kwargs", MAX_DEPTH + 1)
    return _encode([positional, keyword]).encode()


def compact(call: Any) -> bytes:
    """Return a call as it is stored, from JSON values.

    Raises PayloadError for what JSON can write and the store cannot keep: 1e400, and half of a surrogate pair."""
    try:
        return json.dumps(call, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # its message quotes the text, which may be a sensitive argument
        raise PayloadError(
            "The arguments have a number that is too large, or half of a surrogate pair. Write another value."
        ) from error


def load(data: bytes, on_missing: str = "fail") -> tuple[list[Any], dict[str, Any]]:
    """Return (args, kwargs) of a call that `dump` wrote.

    Reads the database if the arguments refer to model instances (see `needs_database`).  If a row no longer exists,
    raises Fail, or Discard with `on_missing="discard"`.  Raises PayloadError if the bytes are not a call.
    """
    args, kwargs = read(data)
    if needs_database(data):
        args, kwargs = load_references(args, on_missing), load_references(kwargs, on_missing)
    return args, kwargs


def read(data: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Return (args, kwargs) of a call that `dump` wrote, with a ModelReference for each model instance.

    Raises PayloadError if the bytes are not a call."""
    try:
        loaded = _loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"The stored arguments are not JSON: {error}") from error
    if type(loaded) is list and len(loaded) == 2:
        args, kwargs = loaded
        if type(args) is list:
            if b'"$' in data:
                args = [untag(value) for value in args]
                kwargs = untag(kwargs)
            if isinstance(kwargs, dict):
                return args, kwargs
    raise PayloadError("The stored arguments are not a call: expected [[positional…], {keyword…}].")


def _loads(text: str) -> Any:
    """Do json.loads, in a third of its time for what `dump` writes: that has no spaces before and after the value."""
    try:
        value, end = _decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else json.loads(text)


def dump_value(value: Any, path: str = "value") -> bytes:
    """Return the JSON of one value, for example a result.  Raises PayloadError with the place in the value."""
    if type(value) in _SCALARS or _is_plain(value, 1):
        try:
            return _encode(value).encode()
        except (ValueError, RecursionError):
            pass
    return _encode(tag(value, path, MAX_DEPTH)).encode()


def load_value(data: bytes) -> Any:
    """Return the value that `dump_value` wrote."""
    value = read_value(data)
    return load_references(value, "fail") if b'"$' in data else value


def read_value(data: bytes) -> Any:
    """Return the value that `dump_value` wrote, with a ModelReference for each model instance."""
    try:
        value = _loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"The stored value is not JSON: {error}") from error
    return untag(value) if b'"$' in data else value


def canonical(value: Any, path: str = "value") -> bytes:
    """Return JSON that is equal only for equal values, whatever the order of keys.  Unique keys are made from it."""
    return _encode_sorted(tag(value, path, MAX_DEPTH, ordered=True)).encode()


def needs_database(data: bytes) -> bool:
    """Return whether `load` reads the database, for model instances in the arguments.  May be wrongly True."""
    return b'"$model"' in data


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether the C encoder writes this without loss.  Checks a whole level per step, in C."""
    kind = type(value)
    if kind is dict:
        if set(map(type, value)) - _STR or any(key[:1] == "$" for key in value):
            return False
        inner: Any = value.values()
    elif kind is list or (kind is tuple and depth == 0):
        inner = value
    else:
        return False
    if set(map(type, inner)) <= _SCALARS:
        return True
    return depth < MAX_DEPTH and all(type(item) in _SCALARS or _is_plain(item, depth + 1) for item in inner)
