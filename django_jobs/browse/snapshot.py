"""The numbers that workers publish, so that a page over hundreds of queues need not count each of them."""

from __future__ import annotations

from typing import Any

from django_jobs.browse.counts import (
    LIVE_QUEUES,
    MINUTE,
    PERIODS,
    QUARTER,
    queue_names,
    read_buckets,
    readable_stats,
    widened,
    write_stats,
)
from django_jobs.core.values import State
from django_jobs.serialization.checked import is_moment
from django_jobs.stores import get_store

#: A snapshot of another worker that is younger than this (ms) is not replaced.
FRESH = 4_000


def publish_snapshot() -> bool:
    """Count all queues and store the result for the pages.  Workers call it every few seconds.

    Does nothing if pages can count the queues themselves, or if another worker has just published.  Publishing twice
    does no harm: entries are replaced, never added up."""
    names = queue_names()
    if len(names) <= LIVE_QUEUES:
        return False
    store = get_store()
    before, now = store.get_document("snapshot"), store.now()
    if now - when(before, "at", now) < FRESH:
        return False
    stats = readable_stats(names)
    counts = {state.value: sum(entry.counts.get(state, 0) for entry in stats) for state in State}
    changes: dict[str, Any] = {"at": now, "counts": counts, "queues": {e.queue: write_stats(e) for e in stats}}
    if now - when(before, "series_at", now) >= MINUTE:
        changes |= {"series_at": now} | recent_series(before, names, now)
    store.update_document("snapshot", changes)
    return True


def recent_series(before: dict[str, Any], names: list[str], now: int) -> dict[str, Any]:
    """Return both series: past values are copied, and the last two quarters of an hour are counted again."""
    span, _ = PERIODS["day"]
    since = max(when(before, "series_at", now) // QUARTER * QUARTER, now - span) // QUARTER * QUARTER
    minutes = get_store().sums(names, since)
    return {
        period: {
            str(start): events
            for start, events in (read_buckets(before, period) | widened(minutes, width)).items()
            if start >= now - span
        }
        for period, (span, width) in PERIODS.items()
    }


def when(before: dict[str, Any], entry: str, now: int) -> int:
    """Return a time in the last snapshot; 0 if it is not valid."""
    at = before.get(entry)
    return at if is_moment(at) and at <= now else 0
