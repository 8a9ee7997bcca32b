"""Read `QUEUE ID` lines, print `ID STATE DEATHS` lines: `python look.py < ids`."""

from __future__ import annotations

import sys

import django

if __name__ == "__main__":
    django.setup()
    from django_jobs import get_job

    for line in sys.stdin:
        queue, id = line.split()
        handle = get_job(id, queue)
        lost = sum(attempt.outcome != "failed" for attempt in handle.attempts)
        print(id, handle.state, lost)
