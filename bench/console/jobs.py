"""A job that leaves a mark each time it runs: one byte of a shared file per job."""

from __future__ import annotations

import mmap
import os

from django_jobs import job

with open(os.environ["BENCH_MARKS"], "r+b") as file:
    marks = mmap.mmap(file.fileno(), 0)


@job(name="bench.mark", aliases=[f"bench.type{n}" for n in range(1, 20)], queue="q0")
def mark(number: int) -> None:
    """Add one to the byte of this job."""
    marks[number] = min(marks[number] + 1, 255)
