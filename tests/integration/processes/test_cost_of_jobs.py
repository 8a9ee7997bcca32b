"""What a worker does for each job, counted: calls of functions, and steps of Python's interpreter.

Times differ between machines and hours.  These numbers do not, so that no change makes each job a little slower
unnoticed.  Counted is what one job more in a batch costs, so without what is done once for each batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.docs.pages import ROOT
from tests.support.backends.servers import running_redis


@cache
def counted() -> dict[str, tuple[float, float]]:
    with running_redis() as url:
        printed = subprocess.run(
            [sys.executable, "-m", "tests.integration.processes.counted_jobs", url],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, timeout=120, check=True,
        ).stdout  # fmt: skip
    found: dict[str, tuple[float, float]] = json.loads(printed)
    return found


@pytest.mark.redis
@pytest.mark.accepts("G02")
@pytest.mark.parametrize(
    ("kind", "most_calls", "most_steps"),
    [
        ("plain", 65, 1010),
        ("unique", 74, 1110),
        ("timeout", 82, 1320),
        # With the signature of its error, so that Redis need not compute it: that takes half of the server's time away.
        ("fails", 230, 2840),
        # One round trip for each, with two calls: the end of the last job and the claim of the next.
        ("at_most_once", 380, 5000),
    ],
)
def test_a_job_more_in_a_batch_costs_no_more_than_this(kind: str, most_calls: int, most_steps: int) -> None:
    calls, steps = counted()[kind]
    assert (calls <= most_calls, steps <= most_steps) == (True, True), (calls, steps)
