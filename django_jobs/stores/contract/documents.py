"""Reading what the fleet wrote down as JSON: whatever stands there, it must break no page and stop no worker."""

from __future__ import annotations

import json
from typing import Any

#: What taking apart an entry raises that somebody has broken.
BROKEN = (AttributeError, LookupError, TypeError, ValueError)
#: What a worker is shown to do whose description cannot be read.
UNREADABLE = {"state": "unreadable"}


def read_entry(text: bytes | str) -> Any:
    """The value; None if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_worker(text: bytes | str) -> dict[str, Any]:
    """What a worker says of itself."""
    info = read_entry(text)
    return info if isinstance(info, dict) else dict(UNREADABLE)
