"""Reads JSON that workers have stored.  An unreadable entry must not break a page or stop a worker."""

from __future__ import annotations

import json
from typing import Any

#: The errors that a broken entry raises when it is decoded.
BROKEN = (AttributeError, LookupError, TypeError, ValueError)
#: The description shown for a worker whose own description cannot be read.
UNREADABLE = {"state": "unreadable"}


def read_entry(text: bytes | str) -> Any:
    """Return the value; None if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_worker(text: bytes | str) -> dict[str, Any]:
    """Return a worker's description of itself."""
    info = read_entry(text)
    return info if isinstance(info, dict) else dict(UNREADABLE)
