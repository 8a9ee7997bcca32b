"""Odd values: well-formed for Redis, and not what this package writes.  Made from the sound value that they replace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

#: In place of a value of JSON, of whatever type.
IN_JSON = (
    "null", "true", "-1", "0", "1.5", "NaN", "Infinity", "1e999", "9" * 25, "-" + "9" * 25, "9" * 5_000, "9" * 400,
    '"odd"', '""', '"\\ud800"', '"\\u0000"', "[]", "{}", "[1]", '[["odd"]]', '{"odd": 1}', "[" * 5_000 + "]" * 5_000,
)  # fmt: skip
#: In place of a text, or of a part of one between ":" or line ends.
IN_TEXT = (
    b"", b"odd", b"-1", b"0", b"1.5", b"nan", b"inf", b"9" * 25, b"9" * 400, b"9" * 5_000, b"\xff\xfe", b"\0",
    "²".encode(), "٣".encode(), b":", b"::::", b"\n", b"{", b"null", b"[" * 5_000,
)  # fmt: skip
SCORES = (b"inf", b"-inf", b"1e300", b"-1e300", b"0", b"-1", b"1.5", b"9007199254740993")
#: Levels of JSON whose parts are replaced.
DEEP = 4


def odd_texts(sound: bytes) -> Iterator[bytes]:
    """Yield odd values in place of this one: first whole ones, then such with one odd part."""
    yield from IN_TEXT
    yield from (text.encode() for text in IN_JSON)
    yield from _odd_parts(sound)


def _odd_parts(sound: bytes) -> Iterator[bytes]:
    parsed = _parsed(sound)
    if parsed is not None:
        yield from (text.encode() for text in _odd_json(parsed, DEEP))
        return
    for separator in (b"\n", b"\0", b":"):
        if separator in sound:
            parts = sound.split(separator, 6 if separator == b"\n" else 4)
            for at, part in enumerate(parts):
                inner = _odd_parts(part) if _is_made_of_parts(part) else iter(IN_TEXT)
                for odd in inner:
                    yield separator.join([*parts[:at], odd, *parts[at + 1 :]])
                yield separator.join(parts[:at] + parts[at + 1 :])
            return


def _is_made_of_parts(text: bytes) -> bool:
    return _parsed(text) is not None or any(separator in text for separator in (b"\n", b"\0", b":"))


def _parsed(text: bytes) -> Any:
    """The value, if it is an object or a list of JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _odd_json(value: Any, levels: int) -> Iterator[str]:
    """Yield the texts of this value with one odd part, at each place."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, part in items:
        odd = list(IN_JSON)
        if isinstance(part, dict | list) and levels:
            odd += _odd_json(part, levels - 1)
        for text in odd:
            yield _written(value, key, text)
        yield _written(value, key, None)
    yield _written(value | {"odd": 1} if isinstance(value, dict) else [*value, 1], None, None)


def _written(value: Any, key: Any, text: str | None) -> str:
    """Write the value with this text in place of the part `key`; None: without it."""
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(name)}: {text if name == key else json.dumps(part)}"
            for name, part in value.items()
            if text is not None or name != key
        ]
        return "{" + ", ".join(parts) + "}"
    parts = [text if at == key else json.dumps(part) for at, part in enumerate(value) if text is not None or at != key]  # type: ignore[misc]
    return "[" + ", ".join(parts) + "]"
