"""Findings that somebody has acknowledged for a time: they are listed apart, and count nowhere until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_jobs.operations.diagnosis.finding import Finding
from django_jobs.serialization.checked import is_moment
from django_jobs.stores import get_store

#: The document in which acknowledgements are kept: the key of a finding → [until, by, reason].
DOCUMENT = "acknowledged"
#: ms: the longest time for which a finding can be acknowledged.
LONGEST = 90 * 86_400_000


class Acknowledged(NamedTuple):
    """Until when (ms) a finding is acknowledged, by whom, and why."""

    until: int
    by: str
    reason: str


def read(now: int) -> dict[str, Acknowledged]:
    """Return what is acknowledged now, by the key of the finding."""
    return {key: each for key, value in get_store().get_document(DOCUMENT).items() if (each := _read(value, now))}


def _read(value: Any, now: int) -> Acknowledged | None:
    match value:
        case [until, str(by), str(reason)] if is_moment(until) and until > now:
            return Acknowledged(until, by, reason)
    return None


def acknowledge(found: Sequence[Finding], until: int, *, by: str, reason: str) -> None:
    """Acknowledge these findings until then (ms).  An older acknowledgement of the same finding is replaced; those that
    are over are forgotten.  Raises ValueError for a time that has passed, or is too far away."""
    now = get_store().now()
    if not now < until <= now + LONGEST:
        raise ValueError("A finding can be acknowledged for at most 90 days.")
    _change({each.key: [until, by, reason] for each in found}, now)


def withdraw(keys: Sequence[str]) -> None:
    """Let these findings count again."""
    _change(dict.fromkeys(keys), get_store().now())


def _change(changes: Mapping[str, Any], now: int) -> None:
    over = {key: None for key, value in get_store().get_document(DOCUMENT).items() if _read(value, now) is None}
    get_store().update_document(DOCUMENT, over | dict(changes))
