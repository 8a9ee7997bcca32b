"""A rolling deploy: workers of two versions on one store."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.pace import Pace
from tests.support.waiting import wait_until

__all__ = ["site"]

#: the new version has one job more.
NEW = {"SURVIVAL_NEW_JOB": "brand-new"}


def is_up(site: WorkerSite, workers: int) -> None:
    """Until so many workers have said what they know."""

    def up() -> bool:
        found = site.store.workers()
        return len(found) == workers and all(worker.info.get("knows") for worker in found)

    wait_until(up, f"{workers} workers run", seconds=30)


@pytest.mark.timed
@pytest.mark.accepts("R04")
def test_new_jobs_start_within_a_second_beside_workers_that_do_not_know_them(site: WorkerSite, pace: Pace) -> None:
    for _ in range(3):
        site.pool(threads=2)
    site.pool(threads=2, extra=NEW)
    is_up(site, 4)
    for n in range(20):
        began = monotonic()
        id = site.put("brand-new", **({"timeout": 10_000} if n % 4 == 3 else {}))
        wait_until(lambda id=id: site.info(id).state is State.SUCCEEDED, f"job {n} ran", seconds=10, every=0.005)
        pace.within(began, 1.0, f"job {n}")
        info = site.info(id)
        assert (info.failures, info.crashes, info.attempts) == (0, 0, ())
    began = monotonic()
    many = [site.put("brand-new" if n % 2 else "work") for n in range(60)]
    wait_until(lambda: all(site.info(id).state is State.SUCCEEDED for id in many), "all ran", seconds=10, every=0.01)
    pace.within(began, 1.0 + 60 * 0.02)


@pytest.mark.accepts("R04")
def test_a_new_job_waits_for_the_first_worker_that_knows_it(site: WorkerSite) -> None:
    old = site.pool()
    is_up(site, 1)
    waiting = [site.put("brand-new") for _ in range(20)]
    wait_until(lambda: all(site.info(id).state is State.BLOCKED for id in waiting), "they wait", seconds=10)
    site.wait(site.put("work"))
    site.pool(extra=NEW)
    for id in waiting:
        info = site.wait(id)
        assert (info.failures, info.crashes, info.attempts) == (0, 0, ())
    assert old.process.poll() is None


@pytest.mark.timed
@pytest.mark.accepts("R04")
def test_one_that_was_busy_takes_it_as_soon_as_it_is_free(site: WorkerSite, pace: Pace, tmp_path: Path) -> None:
    site.pool(extra=NEW, threads=1)
    site.pool()
    is_up(site, 2)
    gate = tmp_path / "gate"
    busy = site.put("brand-new", str(gate))
    # A claim of the one that does not know it looks like a running job too.
    wait_until(lambda: any(event.id == busy for event in site.ledger.read()), "it has begun", seconds=10)
    waits = site.put("brand-new")
    site.wait(waits, State.BLOCKED)
    gate.touch()
    site.wait(busy)
    freed = monotonic()
    site.wait(waits)
    pace.within(freed, 1.0)
