"""Web servers fork, or start processes anew, after the store was used: each process talks to it on its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.forking import JOBS
from tests.integration.workers import WorkerSite, site
from tests.support.pools import ROOT

__all__ = ["site"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_parent_and_children_enqueue_at_the_same_time(site: WorkerSite, method: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.integration.forking", method],
        env=site.environment(), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    batches = json.loads(ran.stdout)

    assert [len(batch) for batch in batches] == [JOBS] * 4
    assert len({id for batch in batches for id in batch}) == JOBS * 4
    assert site.counts()["queued"] == JOBS * 4


#: What a server with preloaded code does before it forks.  Python then ends the interpreter in another order: modules
#: may be gone before the connection is.
PROGRAM = """
import gc
import django
django.setup()
from django_jobs.stores.redis.connection import thread_connection
from tests.integration.worker_project.jobs import add

def serve():
    gc.freeze()
    add.enqueue(1, 1)

add.enqueue(1, 1)
serve()
"""


def test_a_process_that_has_enqueued_ends_without_a_word(site: WorkerSite) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=site.environment(), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert site.counts()["queued"] == 2
