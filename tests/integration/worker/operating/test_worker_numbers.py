"""How many jobs each worker has done: what it publishes of itself, whatever becomes of its processes."""

from __future__ import annotations

import signal
from pathlib import Path

from django_jobs.browse.trends import worker_trend
from django_jobs.core.values import State
from django_jobs.samples.worker import ENDS, totals_of
from tests.integration.workers import WorkerSite, site
from tests.support.processes import send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]


def totals(site: WorkerSite) -> dict[str, int]:
    """Of the one worker that runs; nothing until it has reported."""
    (about,) = [totals_of(worker.info) for worker in site.store.workers()] or [None]
    return about or dict.fromkeys(ENDS, 0)


def reports(site: WorkerSite, **wanted: int) -> None:
    expected = dict.fromkeys(ENDS, 0) | wanted
    wait_until(lambda: totals(site) == expected, f"{expected}, but it is {totals(site)}", seconds=10)


def test_a_worker_says_how_its_attempts_ended_and_leaves_nothing_behind(site: WorkerSite, tmp_path: Path) -> None:
    ids = [site.put("work") for _ in range(5)] + [site.put("once", at_most_once=True), site.put("fails_once")]
    ids.append(site.put("snoozes_once", str(tmp_path / "flag")))
    dead = [site.put("raises", "plain", max_attempts=1), site.put("timed", timeout=300, max_attempts=2)]
    pool = site.pool(threads=2)
    for id in ids:
        site.wait(id)
    for id in dead:
        site.wait(id, State.DEAD)
    reports(site, succeeded=8, failed=4, dead=2, retried=2, snoozed=1)
    (worker,) = site.store.workers()
    sums = worker_trend(worker, "hour").sums
    assert (sums["succeeded"], sums["failed"], sums["dead"]) == (8, 4, 2)
    pool.stop()
    assert site.store.workers() == []


def test_killed_processes_take_no_number_with_them_and_count_none_twice(site: WorkerSite, tmp_path: Path) -> None:
    pool = site.pool(processes=2, threads=2)
    for id in [site.put("work") for _ in range(20)]:
        site.wait(id)
    alone = [site.put("work", timeout=60_000) for _ in range(10)]
    for id in alone:
        site.wait(id)
    reports(site, succeeded=30)
    before = set(pool.children())
    for pid in before:
        send_signal(pid, signal.SIGKILL)
    wait_until(lambda: len(set(pool.children()) - before) == 4, "they are replaced", seconds=20)
    site.wait(site.put("dies_once", str(tmp_path / "flag")))
    site.wait(site.put("work"))
    reports(site, succeeded=32)
