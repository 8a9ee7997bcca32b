"""What may take long, or ask a database, is done beside the parent: its heartbeats depend on nothing but the store."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from time import monotonic
from typing import Any

import pytest

from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import pair
from django_jobs.worker.maintenance import process
from django_jobs.worker.maintenance.process import MaintenanceProcess
from tests.integration.workers import WorkerSite, maintenance_of, site
from tests.support.backends.missing import missing
from tests.support.pace import Pace
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

__all__ = ["site"]


@pytest.fixture
def silent_database() -> Iterator[dict[str, str]]:
    """The environment of workers whose database takes connections and never answers."""
    if find_spec("psycopg") is None:
        missing("psycopg is not installed.")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"SILENT_DATABASE": str(server.getsockname()[1])}


def test_a_database_that_never_answers_costs_no_running_job_its_claim(
    site: WorkerSite,
    silent_database: dict[str, str],
    pace: Pace,
) -> None:
    site.jobs_settings["ARCHIVE"] = {"DAYS": 1}
    caught = site.pool(extra=silent_database)
    site.wait(site.put("work"))  # there is something to archive
    long = site.put("work", 7_000)
    site.ledger.wait("start", 2, seconds=5)
    other = site.pool(extra=silent_database)

    info = site.wait(long, seconds=15)
    assert info.crashes == 0
    assert [event.kind for event in site.ledger.read()] == ["start", "end", "start", "end"]
    began = monotonic()
    assert (caught.stop(), other.stop()) == (0, 0)
    pace.within(began, 4, "what hangs is given up in time")


def test_jobs_of_a_dead_worker_are_recovered_though_the_database_never_answers(
    site: WorkerSite,
    silent_database: dict[str, str],
    pace: Pace,
) -> None:
    site.jobs_settings["ARCHIVE"] = {"DAYS": 1}
    doomed = site.pool(extra=silent_database)
    site.wait(site.put("work"))
    id = site.put("until_stopped")
    site.ledger.wait("start", 2, seconds=5)
    doomed.kill()
    began = monotonic()
    site.pool(extra=silent_database)
    wait_until(lambda: [e.kind for e in site.ledger.read()].count("start") == 3, "it runs again", seconds=15)
    pace.within(began, 2 + 5, "a lease and the search")
    assert site.info(id).crashes == 1


def test_a_maintenance_process_that_dies_is_replaced_and_costs_no_job_anything(site: WorkerSite, pace: Pace) -> None:
    pool = site.pool()
    id = site.put("work", 3_000)
    site.ledger.wait("start", 1, seconds=5)
    first = maintenance_of(site, pool)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first), "it is gone")
    second = maintenance_of(site, pool)
    assert site.wait(id).crashes == 0
    os.kill(second, signal.SIGSTOP)  # nor does one that is stuck hold anything up
    began = monotonic()
    site.wait(site.put("work"))
    assert pool.stop() == 0
    pace.within(began, 4, "what hangs is given up in time")
    assert not is_alive(second)


def test_a_duty_that_does_not_come_back_is_given_up_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[int] = []
    monkeypatch.setattr(os, "_exit", given_up.append)

    class Endless:
        def tick(self) -> float:
            raise AssertionError("not called here")

    ours, theirs = pair()
    config: Any = WorkerConfig(queues=())
    maintenance = MaintenanceProcess(Store.from_setting("redis://localhost"), config, [Endless()], theirs)
    task_thread, now = maintenance.task_threads[0], monotonic()
    for since, expected in ((None, []), (now - process.STUCK + 1, []), (now - process.STUCK - 1, [process.GIVEN_UP])):
        task_thread.since = since
        maintenance._look_at_task_threads(now)
        assert given_up == expected
    for end in (ours, theirs):
        end.close()
