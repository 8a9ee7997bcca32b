"""A group of 10,000 costs at most twice its jobs alone, in enqueueing and in finishing, by processor time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends.servers import running_redis

ROOT = Path(__file__).resolve().parents[3]


def measured(store: str) -> dict[str, float]:
    """Measure in a process of its own: this one has the objects of a thousand tests to look through for garbage."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "bench.django_settings", "BENCH_STORE": store}
    command = [sys.executable, "-m", "bench.groups"]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.redis
@pytest.mark.timed
def test_a_group_costs_at_most_twice_its_jobs() -> None:
    with running_redis() as url:
        found = measured(url)
    assert found["enqueue ×"] <= 2, found
    assert found["finish ×"] <= 2, found
