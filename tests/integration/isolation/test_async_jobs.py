"""`async def` jobs of one process share its event loop, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.waiting import wait_until

__all__ = ["site"]


def value_of(site: WorkerSite, id: str) -> Any:
    return json.loads(site.wait(id).result or b"null")


def begin(site: WorkerSite, name: str) -> tuple[str, Path]:
    """Start a job that goes on when a file is there.  Return its id and the file."""
    began, goes_on = site.folder / f"{name} began", site.folder / f"{name} goes on"
    id = site.put(name, str(began), str(goes_on))
    wait_until(began.exists, f"{name} has begun")
    return id, goes_on


def test_the_end_of_one_job_leaves_the_transaction_of_another_open(site: WorkerSite) -> None:
    site.pool()
    writer, goes_on = begin(site, "acommits")
    assert value_of(site, site.put("areads", "SELECT 3")) == [{"$tuple": [3]}]
    goes_on.touch()
    site.wait(writer)
    assert value_of(site, site.put("areads", "SELECT number FROM written")) == [{"$tuple": [7]}]


def test_a_blocking_call_of_one_job_does_not_hold_up_another(site: WorkerSite) -> None:
    site.pool()
    blocked, goes_on = begin(site, "ablocks")
    site.wait(site.put("areads", "SELECT 3"), seconds=5)
    site.wait(site.put("awork", 1), seconds=5)
    assert site.info(blocked).state is State.RUNNING
    goes_on.touch()
    site.wait(blocked)


def test_a_job_that_cancels_its_task_and_returns_has_returned(site: WorkerSite) -> None:
    site.pool()
    assert value_of(site, id := site.put("acancels_itself")) == 7
    assert site.info(id).crashes == 0


def test_a_job_that_another_cancels_before_it_begins_still_runs(site: WorkerSite) -> None:
    site.pool()
    _, goes_on = begin(site, "acancels_others")
    ids = [site.put("awork", 1) for _ in range(3)]
    wait_until(lambda: all(site.info(id).state is State.RUNNING for id in ids), "the loop has them")
    goes_on.touch()
    for id in ids:
        assert site.wait(id).attempts == ()


def test_calls_in_helper_threads_leave_no_transaction_open(site: WorkerSite) -> None:
    site.pool()
    assert value_of(site, site.put("ahelped")) == [False] * 3


def test_threads_serve_later_jobs_too(site: WorkerSite) -> None:
    site.pool()
    counts = [value_of(site, site.put("acounts_threads")) for _ in range(30)]
    assert max(counts) <= counts[0] + 1


@pytest.fixture
def prepared_site(redis_server: str, tmp_path: Path) -> Any:
    path = "tests.integration.worker_project.async_jobs.with_a_table"
    made = WorkerSite(tmp_path, redis_server, NAMESPACE=f"w{uuid4().hex[:10]}", MIDDLEWARE=[path])
    yield made
    made.close()


def test_a_job_uses_the_connection_that_its_middleware_prepared(prepared_site: WorkerSite) -> None:
    site = prepared_site
    site.pool()
    for _ in range(2):
        assert value_of(site, site.put("areads", "SELECT number FROM prepared")) == [{"$tuple": [5]}]
