"""Small JSON objects that all workers share, and JSON that workers have stored.

An unreadable entry must not break a page or stop a worker."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
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


class DocumentStore(ABC):
    """The part of the store contract for documents: small JSON objects, by key."""

    @abstractmethod
    def get_document(self, key: str) -> dict[str, Any]:
        """Return a small JSON object that all workers share (paused schedules, bulk operations, the version of remote
        types …); {} if there is none.  The value of an entry that cannot be read is None."""

    @abstractmethod
    def update_document(
        self, key: str, changes: Mapping[str, Any], *, expected: Mapping[str, Any] | None = None
    ) -> bool:
        """Set some entries of the object, each atomically; the value None removes the entry.

        With `expected`, change nothing unless these entries have these values, as `get_document` returned them (None:
        there is no such entry).  The check and all changes are then one atomic step.  Returns whether it was done.  If
        the answer to a first call was lost, the call is repeated, and may return False for what it has done itself."""
