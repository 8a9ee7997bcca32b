"""The archive of real workers: one archiver for a queue at a time, and another one if it dies."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.core.values import Completed, Job, NewJob, Options
from django_jobs.serialization.record import encode
from tests.integration.databases import DatabaseSite
from tests.support.pace import Pace
from tests.support.waiting import wait_until

LEASE = 2.0


@pytest.fixture
def lease() -> float:
    return LEASE


@pytest.fixture
def archiving(redis_server: str, tmp_path: Path, lease: float) -> Iterator[DatabaseSite]:
    """A site whose workers archive into a database of SQLite."""
    file = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "archive.sqlite3"),
        "OPTIONS": {"timeout": 30},
    }
    settings: dict[str, Any] = {"NAMESPACE": f"a{uuid4().hex[:10]}", "ARCHIVE": {"DAYS": 180}, "LEASE": lease}
    made = DatabaseSite(tmp_path, redis_server, {"default": file}, **settings)
    made.options = replace(made.options, archive=True, history=10)
    made.migrate()
    yield made
    made.close()


def end_jobs(site: DatabaseSite, number: int) -> list[str]:
    """Enqueue and finish so many jobs, as a worker would, and return their ids."""
    ids = [uuid4().hex for _ in range(number)]
    for start in range(0, number, 500):
        jobs = [Job(id, "default", "work", b"[[],{}]", 0, Options()) for id in ids[start : start + 500]]
        site.store.enqueue("default", [NewJob(job.id, encode(job)) for job in jobs])
        claims = site.store.claim("default", "test", 500, lease=60_000).claims
        site.store.complete("default", [Completed(claim) for claim in claims])
    return ids


def archived(site: DatabaseSite) -> list[str]:
    with closing(sqlite3.connect(site.folder / "archive.sqlite3", timeout=30)) as connection:
        return [id for (id,) in connection.execute("SELECT job_id FROM django_jobs_archivedjob")]


def test_another_worker_takes_over_when_the_archiver_is_killed_and_no_row_is_lost_or_doubled(
    archiving: DatabaseSite, pace: Pace
) -> None:
    ids = end_jobs(archiving, 3000)
    doomed = archiving.pool()
    wait_until(lambda: archived(archiving), "the first worker archives")
    doomed.kill()
    ids += end_jobs(archiving, 1000)
    second = archiving.pool()
    pids = lambda: {worker.info["pid"] for worker in archiving.store.workers()}  # noqa: E731
    wait_until(lambda: second.pid in pids(), "the second worker is up")  # the first is still listed
    began = monotonic()
    wait_until(lambda: len(archived(archiving)) == len(ids), "all is archived", seconds=60)
    pace.within(began, LEASE + 5, "the lease of the dead archiver, and the next look")
    assert sorted(archived(archiving)) == sorted(ids)
    wait_until(lambda: archiving.store.stats(["default"])[0].unarchived == 0, "nothing waits")


@pytest.mark.parametrize("lease", [600.0])
def test_a_worker_that_stops_in_order_hands_the_archive_over(archiving: DatabaseSite) -> None:
    end_jobs(archiving, 10)
    first = archiving.pool()
    wait_until(lambda: len(archived(archiving)) == 10, "the first worker archives")
    end_jobs(archiving, 10)
    first.stop()
    wait_until(lambda: not archiving.store.workers(), "the first worker has left")
    # The first may have archived the rest before it stopped.
    end_jobs(archiving, 1)
    assert archiving.store.archive_turns(["default"], "another", 1000) == ["default"]
