"""A process that enqueues workflows and batches, and may be killed at a crash point on the way.

Prints the id of each workflow before it enqueues it.  Arguments: kind ("chain" or "batch"), how many, jobs in each,
ms of each job.
"""

from __future__ import annotations

import sys

import django

django.setup()

from django_jobs import Batch, chain  # noqa: E402
from tests.survival.project.jobs import work  # noqa: E402

kind, number, length, ms = sys.argv[1], *map(int, sys.argv[2:])
QUEUES = ("default", "other")

for _ in range(number):
    if kind == "chain":
        flow = chain(*(work.using(queue=QUEUES[n % 2]).s(ms) for n in range(length)))
        print(flow.enqueue().id, flush=True)
    else:
        batch = Batch(on_success=work.s(ms), on_complete=work.s(ms))
        print(batch.id, flush=True)
        with batch:
            for n in range(length):
                work.using(queue=QUEUES[n % 2]).enqueue(ms)
