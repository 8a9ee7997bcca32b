"""Stored values as text for people: `{"$date": "2026-03-29"}` → 2026-03-29.  Reads no database and imports nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

#: Longer values are cut: a page shows many of them.
LENGTH = 2_000


def readable(value: Any) -> str:
    """Return one argument or result as text of at most LENGTH characters."""
    text = value if isinstance(value, str) else json.dumps(untagged(value), ensure_ascii=False, indent=None)
    if isinstance(value, dict) and isinstance(untagged(value), str):
        text = str(untagged(value))
    return text if len(text) <= LENGTH else f"{text[:LENGTH]}…"


def untagged(value: Any) -> Any:
    """Return the value with each tagged value as plain text; malformed ones stay unchanged."""
    if isinstance(value, list):
        return [untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        writer = _WRITERS.get(tag)
        if writer is not None:
            try:
                return writer(content)
            except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
                return value
    return {key: untagged(item) for key, item in value.items()}


def _moment(content: Any) -> str:
    if isinstance(content, str):
        return content.replace("T", " ")
    text, zone, _ = content
    return f"{text.replace('T', ' ')} {zone or ''}".strip()


def _model(content: Any) -> str:
    label, key, *_ = content
    return f"{label} {key}"


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": _moment,
    "$time": _moment,
    "$date": str,
    "$timedelta": lambda content: str(timedelta(*content)),
    "$decimal": str,
    "$uuid": str,
    "$bytes": lambda content: f"base64:{content}",
    "$int": str,
    "$tuple": lambda content: [untagged(item) for item in content],
    "$dict": lambda content: {str(key): untagged(item) for key, item in content},
    "$model": _model,
    "$missing": lambda why: f"not kept: {why}",  # serialization/results.py
}
