"""Kill, on real workers: the process that runs the job is ended, as at a time limit."""

from __future__ import annotations

import pytest

from django_jobs.core.values import State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.stores import use_store
from tests.integration.worker.test_worker_ends import started, starts
from tests.integration.workers import WorkerSite, site
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

__all__ = ["site"]
#: LEASE is 2 s here and a parent asks six times in a lease; the rest is for a machine that is busy.
TOLD = 2.0


@pytest.mark.parametrize("options", [{}, {"timeout": 60_000}], ids=["shared", "alone"])
def test_its_process_is_ended(site: WorkerSite, options: dict[str, int]) -> None:
    site.pool()
    id = site.put("deaf", **options)
    first = started(site, id)
    assert site.store.kill("default", [id], "by hand") == [id]

    wait_until(lambda: not is_alive(first.pid), "its process has ended", seconds=TOLD)
    info = site.info(id)
    assert (info.state, info.crashes, info.attempts[-1].outcome) == (State.DEAD, 0, "killed")
    assert len(starts(site, id)) == 1


def test_a_job_may_be_cancelled_with_its_attempt(site: WorkerSite) -> None:
    site.pool()
    id = site.put("deaf")
    first = started(site, id)
    handle: JobHandle[None] = JobHandle(id, "deaf", "default")
    use_store(site.store)
    try:
        assert not handle.cancel()
        assert handle.cancel(terminate=True)
        assert handle.refresh().state == State.CANCELLED
    finally:
        use_store(None)

    wait_until(lambda: not is_alive(first.pid), "its process has ended", seconds=TOLD)
    info = site.info(id)
    assert (info.state, info.crashes, info.attempts[-1].outcome) == (State.CANCELLED, 0, "killed")
    assert len(starts(site, id)) == 1


def test_killed_and_retried_at_once_it_runs_again_when_the_first_has_ended(site: WorkerSite) -> None:
    site.pool()
    site.pool()
    id = site.put("deaf")
    first = started(site, id)
    site.store.kill("default", [id], "by hand")
    assert site.store.revive("default", [id]) == [id]

    second = started(site, id, times=2)
    assert second.pid != first.pid
    assert not is_alive(first.pid)


def test_neighbours_run_again_uncharged(site: WorkerSite) -> None:
    site.pool(threads=2)
    neighbour, id = site.put("deaf"), site.put("deaf")
    first = started(site, id)
    assert started(site, neighbour).pid == first.pid
    site.store.kill("default", [id], "by hand")

    assert started(site, neighbour, times=2).pid != first.pid
    info = site.info(neighbour)
    assert (info.failures, info.crashes) == (0, 0)
