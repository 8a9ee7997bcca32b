"""Periodic jobs: where they are defined, when they run, and the functions for operators and your code."""

from django_jobs.schedules.day import Day, Run, days
from django_jobs.schedules.listing import (
    database_entries,
    described,
    entries,
    from_ms,
    get_entry,
    last_run,
    next_runs,
    pause,
    paused_at,
    queue_of,
    resume,
    run_now,
    to_ms,
)

__all__ = [
    "Day",
    "Run",
    "database_entries",
    "days",
    "described",
    "entries",
    "from_ms",
    "get_entry",
    "last_run",
    "next_runs",
    "pause",
    "paused_at",
    "queue_of",
    "resume",
    "run_now",
    "to_ms",
]
