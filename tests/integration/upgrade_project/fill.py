"""Enqueue jobs of every kind, print their ids, one a line: `python fill.py FIRST COUNT`."""

from __future__ import annotations

import sys
from datetime import timedelta
from decimal import Decimal

import django


def fill(first: int, count: int) -> list[str]:
    """Enqueue `count` jobs of each kind."""
    from upgrade_project import jobs

    handles = []
    for n in range(first, first + count):
        handles += [
            jobs.plain.enqueue(n, more={"price": Decimal("1.20"), "list": [1, None]}),
            jobs.plain.enqueue_in(timedelta(milliseconds=300), n),
            jobs.timed.using(priority=5).enqueue(n),
            jobs.fails_once.enqueue(n),
            jobs.unique.enqueue(n),
            jobs.once.using(job_id=f"once-{n}").enqueue(n),
        ]
    return [f"{handle.queue} {handle.id}" for handle in handles]


if __name__ == "__main__":
    django.setup()
    print("\n".join(fill(int(sys.argv[1]), int(sys.argv[2]))))
