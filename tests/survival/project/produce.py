"""A producer process: enqueues as a web process would, and writes attempt and ack of each job into the ledger.

One JSON request a line on stdin: {"job", "args", "ids", "queue"}.  One JSON answer a line on stdout:
{"acked": [...], "declined": [ids that an equal job kept out], "errors": {id: [error class, seconds]}}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

import django

django.setup()

from django_jobs.core import registry  # noqa: E402
from django_jobs.core.values import Added  # noqa: E402
from django_jobs.enqueueing.submit import enqueue_by_name  # noqa: E402
from django_jobs.exceptions import JobsError  # noqa: E402
from tests.survival.project.jobs import ledger  # noqa: E402


def serve(job: str, args: Sequence[Any], ids: Sequence[str], queue: str | None = None) -> dict[str, Any]:
    """Enqueue one job per id."""
    registry.get(job)
    acked, declined, errors = [], [], {}
    for id in ids:
        ledger.write("attempt", id)
        began = monotonic()
        try:
            handle = enqueue_by_name(job, args, job_id=id, queue=queue)
        except JobsError as error:
            errors[id] = [type(error).__name__, monotonic() - began]
        else:
            if handle.added in (Added.DUPLICATE, Added.REPLACED):
                ledger.write("declined", id)
                declined.append(id)
            else:
                ledger.write("ack", id)
                acked.append(id)
    return {"acked": acked, "declined": declined, "errors": errors}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(serve(**json.loads(line))), flush=True)
