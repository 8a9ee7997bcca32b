"""For which scheduled times of the last day there was no job, and why: noted for people.

Nothing is decided by it.  A note that is lost, as two processes write at the same time, is a reason that is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.serialization.checked import is_moment

if TYPE_CHECKING:
    from django_jobs.stores.redis import Store

#: The document: the id of a schedule → [first, last, why] of each gap, oldest first.
DOCUMENT = "schedule_gaps"
#: Gaps of a schedule that are kept, and for how long (ms).
MOST, KEPT = 50, 25 * 3_600_000


class Gap(NamedTuple):
    """Scheduled times, in ms and both included, for which no job was enqueued."""

    first: int
    last: int
    #: "missed" | "skipped" (the job of an earlier run had not ended) | "twin" (an equal unique job waited) | "paused".
    why: str


def note_gap(store: Store, id: str, gap: Gap) -> None:
    """Note a gap of the schedule with this id, and forget those that are older than a day."""
    document = store.get_document(DOCUMENT)
    found = gaps_of(document, id)
    if found and found[-1].why == gap.why and found[-1].last >= gap.last:
        return  # another process has noted it
    kept = {each: [old for old in gaps_of(document, each) if old.last >= gap.last - KEPT] for each in document}
    kept[id] = [*kept.get(id, ()), gap][-MOST:]
    changes = {each: [list(old) for old in some] or None for each, some in kept.items() if each == id or not some}
    store.update_document(DOCUMENT, changes, expected={id: document.get(id)})


def gaps_of(document: Mapping[str, Any], id: str) -> list[Gap]:
    """Return the gaps of a schedule, oldest first, without those that are damaged."""
    entry = document.get(id)
    return [gap for each in entry if (gap := _read(each))] if isinstance(entry, list) else []


def _read(value: Any) -> Gap | None:
    match value:
        case [first, last, str(why)] if is_moment(first) and is_moment(last):
            return Gap(first, last, why)
    return None
