"""Periodic jobs: where they are defined, when they run, and the functions for operators and your code."""

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
)

__all__ = [
    "database_entries",
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
]
