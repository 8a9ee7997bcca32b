"""Reads JSON that workers have stored.  An unreadable entry must not break a page or stop a worker."""

from __future__ import annotations

from typing import Any

from django_jobs.serialization.checked import loaded

#: The errors that a broken entry raises when it is decoded.
BROKEN = (AttributeError, LookupError, TypeError, ValueError)
#: The description shown for a worker whose own description cannot be read.
UNREADABLE = {"state": "unreadable"}


def read_worker(text: bytes | str) -> dict[str, Any]:
    """Return a worker's description of itself."""
    info = loaded(text)
    return info if isinstance(info, dict) else dict(UNREADABLE)
