"""Job arguments for programs in other languages: JSON without the tags of serialization/json_types.py."""

from __future__ import annotations

from typing import Any

from django_jobs.serialization.checked import Unreadable, loads


def stored_data(call: bytes) -> Any:
    """Return `data` of a stored call of a remote job, its only argument.  Raises ValueError if invalid."""
    match loads(call):
        case [list(args), dict(kwargs)]:
            pass
        case other:
            raise Unreadable(f"{other!r:.100} is no call")
    return plain(args[0] if len(args) == 1 and not kwargs else [args, kwargs] if kwargs else args or None)


def plain(value: Any) -> Any:
    """Return stored JSON without the tags of serialization/json_types.py: dates become text, tuples become lists."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        match key, content:
            case "$dict", list():
                return {str(pair[0]): plain(pair[1]) for pair in content if isinstance(pair, list) and len(pair) == 2}
            case "$tuple", list():
                return [plain(item) for item in content]
            case "$int", str():
                return _whole(content)
            case (("$datetime" | "$date" | "$time" | "$decimal" | "$uuid" | "$bytes"), str()):
                return content
    return {key: plain(item) for key, item in value.items()}


def _whole(text: str) -> int | str:
    """Return a large number; its hexadecimal text, if it has more digits than Python writes into JSON."""
    try:
        number = int(text, 16)
        str(number)
    except ValueError:
        return text
    return number
