"""A process that enqueues workflows and batches, and may be killed at a crash point on the way.

Prints the id of each workflow before it enqueues it.  Arguments: kind ("chain", "graph" or "batch"), how many, jobs in
each, ms of each job.
"""

from __future__ import annotations

import random
import sys

import django

django.setup()

from django_jobs import Batch, Workflow, chain  # noqa: E402
from tests.survival.project.jobs import work  # noqa: E402

kind, number, length, ms = sys.argv[1], *map(int, sys.argv[2:])
QUEUES = ("default", "other")
rng = random.Random(number)

for _ in range(number):
    if kind == "chain":
        flow = chain(*(work.using(queue=QUEUES[n % 2]).s(ms) for n in range(length)))
        print(flow.enqueue().id, flush=True)
    elif kind == "graph":
        graph, steps = Workflow(), []
        for _ in range(length):
            after = rng.sample(steps, min(len(steps), rng.choice((0, 1, 1, 2, 3))))
            # The result of one step before it is passed on; `work` returns what it was given.
            argument = after[0].result if after else ms
            steps.append(graph.add(work.using(queue=rng.choice(QUEUES)).s(argument), after=after))
        print(graph.enqueue().id, flush=True)
    else:
        batch = Batch(on_success=work.s(ms), on_complete=work.s(ms))
        print(batch.id, flush=True)
        with batch:
            for n in range(length):
                work.using(queue=QUEUES[n % 2]).enqueue(ms)
