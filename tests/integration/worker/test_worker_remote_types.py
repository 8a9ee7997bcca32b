"""Workers know the remote job types by being told: a database that hangs holds up no job."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from django_jobs.core.values import State
from tests.integration.api.receiver import Receiver, receiving
from tests.integration.databases import DatabaseSite
from tests.support.pace import Pace
from tests.support.pools import Pool
from tests.support.waiting import wait_until


class RemoteSite(DatabaseSite):
    """Workers, a database that can be gagged, and a server that jobs are posted to."""

    def __init__(self, folder: Path, store: str, receiver: Receiver) -> None:
        self.file, self.gag, self.receiver = folder / "site.sqlite3", folder / "database.gag", receiver
        engine = "tests.integration.gagged_sqlite"
        database = {"ENGINE": engine, "NAME": str(self.file), "OPTIONS": {"gag": str(self.gag)}}
        queues = {"default": {}, "pull": {}}
        jobs_settings = {"QUEUES": queues, "API": {"REMOTE_HOSTS": ["localhost"]}, "NAMESPACE": f"w{uuid4().hex[:10]}"}
        super().__init__(folder, store, {"default": database}, **jobs_settings)
        self.migrate()

    def add_type(self, name: str, queue: str, url: str = "") -> None:
        """A row, written by somebody else."""
        row = {"name": name, "queue": queue, "url": url, "delivery_strategy": "at_least_once", "credentials": ""}
        row |= {"attempts": 3, "concurrency": 0, "timeout": 60}  # type: ignore[dict-item]
        sql = f"INSERT INTO django_jobs_remotejobtype ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(sql, list(row.values()))

    def wait_heard(self) -> None:
        """Until somebody waits for the gagged database."""
        wait_until(self.gag.with_suffix(".heard").exists, "a query waits for its answer", seconds=10)

    def wait_posted(self, id: str, seconds: float) -> None:
        """Until the job was posted, and its claim handed over."""
        posted = lambda: id in {job["id"] for job in self.receiver.got}  # noqa: E731
        wait_until(posted, f"{id} is posted", seconds=seconds)
        wait_until(lambda: self.info(id).worker == f"remote:{id}", "it is handed over", seconds=2)

    def shared_child(self, pool: Pool) -> int:
        """The process that runs most jobs."""
        about = next(worker.info for worker in self.store.workers() if worker.info["pid"] == pool.pid)
        return next(int(child["pid"]) for child in about["children"] if child["lane"] == "shared")


@pytest.fixture
def site(redis_server: str, tmp_path: Path) -> Iterator[RemoteSite]:
    with receiving() as receiver:
        site = RemoteSite(tmp_path, redis_server, receiver)
        try:
            yield site
        finally:
            site.close()


def test_workers_that_start_while_the_database_hangs_run_what_they_know_and_spoil_nothing_else(
    site: RemoteSite,
) -> None:
    site.add_type("php.pushed", "default", site.receiver.url)
    site.add_type("php.pulled", "pull")
    site.gag.touch()
    pushed, pulled = site.put("php.pushed"), site.put("php.pulled", queue="pull")
    site.pool()
    site.wait_heard()
    site.wait(site.put("work"))
    site.wait(pushed, State.BLOCKED)

    site.gag.unlink()
    site.wait_posted(pushed, seconds=8)
    assert site.info(pushed).parked_at == 0
    # Its number: one for its arrival, and one for this claim, the first that was ever tried in that queue.
    (claim,) = site.store.claim("pull", "test", 1, lease=1000).claims
    assert (claim.id, claim.token) == (pulled, 2)


def test_a_burst_does_not_wait_for_jobs_that_only_pull_workers_run(site: RemoteSite) -> None:
    site.add_type("php.pulled", "pull")
    pulled, work = site.put("php.pulled", queue="pull"), site.put("work")
    assert site.pool("--burst").process.wait(60) == 0
    assert (site.info(work).state, site.info(pulled, "pull").state) == (State.SUCCEEDED, State.QUEUED)


@pytest.mark.accepts("K24")
def test_a_database_that_begins_to_hang_changes_nothing_for_known_types_and_new_ones_come_with_its_answer(
    site: RemoteSite,
    pace: Pace,
) -> None:
    site.add_type("php.pushed", "default", site.receiver.url)
    pool = site.pool()
    site.wait_posted(site.put("php.pushed"), seconds=10)
    site.gag.touch()
    site.wait_heard()
    site.wait(site.put("work"))
    site.wait_posted(site.put("php.pushed"), seconds=4)
    os.kill(site.shared_child(pool), signal.SIGKILL)
    site.wait_posted(site.put("php.pushed"), seconds=4)  # its successor knows them, too

    site.gag.unlink()
    site.gag.with_suffix(".heard").unlink()
    began = monotonic()
    site.add_type("php.later", "default", site.receiver.url)
    later = site.put("php.later")
    site.wait_posted(later, seconds=10)
    pace.within(began, 5, "a reading every three seconds, and what was put off for two")
    assert site.info(later).parked_at == 0
