"""For which scheduled times to enqueue jobs now: those just due and, depending on the policy, missed ones."""

from __future__ import annotations

from datetime import timedelta

from django_jobs.schedules.cron import latest_runs, next_run
from django_jobs.schedules.entry import ScheduleEntry
from django_jobs.schedules.gaps import Gap
from django_jobs.schedules.listing import from_ms, to_ms

#: After an outage of any length, no schedule enqueues more jobs than this.
CATCH_UP = 100
#: Runs up to this old are due, not missed: a parent process checks its schedules at least this often.
FRESH = timedelta(seconds=5)
#: With missed="skip" a run may still start this late: a short outage must not cancel a nightly run.
STILL_IN_TIME = timedelta(seconds=60)
#: A scheduled time is missed if it passed so long ago without a job: workers look every few seconds.
LATE = timedelta(seconds=25)


def due_runs(entry: ScheduleEntry, cursor: int, now: int) -> list[int]:
    """Return the scheduled times (ms) later than `cursor` and not later than `now`, oldest first.

    "all": each of them, at most the last 100.  "one": those just due, else the last missed one.  "skip": as "one",
    but none older than a minute."""
    after, until = from_ms(cursor), from_ms(now)
    if entry.missed == "all":
        runs = latest_runs(entry.cron, after, until, entry.zone, CATCH_UP)
    else:
        runs = latest_runs(entry.cron, max(after, until - FRESH), until, entry.zone, CATCH_UP)
        if not runs:
            start = max(after, until - STILL_IN_TIME) if entry.missed == "skip" else after
            runs = latest_runs(entry.cron, start, until, entry.zone, 1)
    return list(map(to_ms, runs))


def missed_before(entry: ScheduleEntry, cursor: int, scheduled: int) -> Gap | None:
    """Return the scheduled times between the last run and this one: no worker was there to enqueue them."""
    first = to_ms(next_run(entry.cron, from_ms(cursor), entry.zone))
    return Gap(first, scheduled - 1, "missed") if first < scheduled else None
