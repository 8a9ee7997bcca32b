"""A child depends on its parent: it works only while the parent keeps its leases, and ends as the parent ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.pools import ROOT
from tests.support.waiting import wait_until

__all__ = ["site"]

RUNWORKERS = [sys.executable, "-m", "django", "runworkers", "--processes", "1", "--threads", "2"]


def test_a_child_whose_parent_is_stopped_claims_nothing_more(site: WorkerSite) -> None:
    pool = site.pool()
    site.wait(site.put("add", 1, 2))
    os.kill(pool.pid, signal.SIGSTOP)
    try:
        time.sleep(1.4)  # more than half of the lease of two seconds
        late = site.put("add", 3, 4)
        time.sleep(0.8)
        assert site.info(late).state is State.QUEUED
    finally:
        os.kill(pool.pid, signal.SIGCONT)
    site.wait(late)


def test_a_worker_whose_output_nobody_reads_starts_its_children(site: WorkerSite) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {**site.environment(PRINTS="1"), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    worker = subprocess.Popen(
        [*RUNWORKERS, "--verbosity", "0"], env=environment, stdout=write, stderr=subprocess.DEVNULL
    )
    os.close(write)
    try:
        site.wait(site.put("add", 1, 2), seconds=15)
    finally:
        worker.terminate()
        worker.wait(20)


def test_an_order_to_stop_during_the_start_ends_the_worker_in_order(site: WorkerSite) -> None:
    environment = {**site.environment(STOPPED_EARLY="1"), "PYTHONPATH": str(ROOT)}
    assert subprocess.run(RUNWORKERS, env=environment, timeout=30).returncode == 0


def test_a_child_sends_its_signals_and_runs_its_exit_handlers(site: WorkerSite) -> None:
    notes = site.folder / "notes"
    pool = site.pool(extra={"CHILD_NOTES": str(notes)})
    wait_until(lambda: notes.exists() and notes.read_text().count("started") == 2, "both children have started")
    assert pool.stop() == 0
    lines = notes.read_text().splitlines()
    assert sorted(lines[:2]) == ["started True"] * 2
    assert lines.count("stopping True") == lines.count("atexit True True") == 2
    assert lines[-1] == "atexit True False", "the parent cleans up what it made before the fork, not its children"


def test_failed_jobs_do_not_keep_their_local_variables(site: WorkerSite) -> None:
    for _ in range(60):
        site.put("fails_with_a_large_local")
    last = site.put("most_large")
    site.pool(threads=1)
    assert json.loads(site.wait(last).result or b"") <= 3
