"""Which fire times are to be enqueued now: those just due, and of those that were missed what the policy says."""

from __future__ import annotations

from datetime import timedelta

from django_jobs.schedules.cron import latest_fires
from django_jobs.schedules.entry import Entry
from django_jobs.schedules.listing import from_ms

#: After an outage of any length no schedule enqueues more than this.
CATCH_UP = 100
#: Fires this old are due, not missed: a parent looks at its schedules at least this often.
FRESH = timedelta(seconds=5)
#: With missed="skip" a fire may still start this late: a short outage must not cost a nightly run.
STILL_IN_TIME = timedelta(seconds=60)


def due_fires(entry: Entry, cursor: int, now: int) -> list[int]:
    """Fire times in ms later than `cursor` and not later than `now`, oldest first.

    "all": each, the last 100.  "one": those just due, else the last that was missed.  "skip": the same, but none that
    is older than a minute."""
    after, until = from_ms(cursor), from_ms(now)
    if entry.missed == "all":
        fires = latest_fires(entry.cron, after, until, entry.zone, CATCH_UP)
    else:
        fires = latest_fires(entry.cron, max(after, until - FRESH), until, entry.zone, CATCH_UP)
        if not fires:
            start = max(after, until - STILL_IN_TIME) if entry.missed == "skip" else after
            fires = latest_fires(entry.cron, start, until, entry.zone, 1)
    return [int(fire.timestamp()) * 1000 for fire in fires]
