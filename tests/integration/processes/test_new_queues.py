"""QUEUES with patterns: workers find queues that are made while they run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite
from tests.support.backends.cluster import running_cluster
from tests.support.pace import Pace
from tests.support.waiting import wait_until

QUEUES = {"default": {}, "tenant-*": {}, "tenant-small-*": {"MAX_CONCURRENCY": 1}}
#: Seconds until a worker serves a queue that is new.
FOUND = 5.0


@pytest.fixture
def make_site(redis_server: str, tmp_path: Path) -> Iterator[Callable[..., WorkerSite]]:
    """Make the settings of workers; `queues`: QUEUES."""
    made: list[WorkerSite] = []

    def make(store: str = redis_server, queues: Any = QUEUES, **settings: Any) -> WorkerSite:
        made.append(WorkerSite(tmp_path, store, NAMESPACE=f"n{uuid4().hex[:10]}", QUEUES=queues, **settings))
        return made[-1]

    yield make
    for site in made:
        site.close()


def served(site: WorkerSite) -> list[list[str]]:
    """The queues of each worker, as it reports them."""
    return [worker.info["queues"] for worker in site.store.workers()]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_queue_made_after_the_start_is_served_within_5_seconds(
    make_site: Callable[..., WorkerSite], pace: Pace, processes: int
) -> None:
    """Jobs of both kinds: those that run beside others, and those that run alone, in children of their own."""
    site = make_site()
    site.put("work", queue="tenant-0")
    pool = site.pool(processes=processes)
    site.wait(site.put("work"))
    for number, options in enumerate(({}, {"at_most_once": True}, {"timeout": 5_000}), 1):
        name = f"tenant-{number}"
        began = monotonic()
        site.wait(site.put("work", queue=name, **options), queue=name, seconds=20)
        pace.within(began, FOUND, f"{name} is served")
    wait_until(lambda: served(site) == [["default", *(f"tenant-{n}" for n in range(4))]], "it reports its queues")
    assert pool.stop() == 0
    assert "WARNING" not in pool.text()
    assert "ERROR" not in pool.text()


def test_a_worker_of_patterns_only_begins_without_a_queue(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site(queues={"*": {}})
    pool = site.pool()
    wait_until(lambda: served(site) == [[]], "it runs")
    site.wait(site.put("work", queue="any"), queue="any")
    assert pool.stop() == 0
    assert "ERROR" not in pool.text()


def test_each_worker_finds_what_its_options_name(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    pools = [
        site.pool("--queues", "tenant-*", "--exclude-queues", "tenant-b*", "--name", "most"),
        site.pool("--queues", "tenant-b*,default", "--name", "some"),
    ]
    for name in ("tenant-a", "tenant-b1", "default"):
        site.wait(site.put("work", queue=name), queue=name)
    left = site.put("work", queue="other")  # made by a process with other settings
    site.wait(site.put("work", queue="tenant-c"), queue="tenant-c")

    def found() -> bool:
        of = {worker.name: worker.info["queues"] for worker in site.store.workers()}
        return of == {"most": ["tenant-a", "tenant-c"], "some": ["default", "tenant-b1"]}

    wait_until(found, "each reports its own")
    assert site.info(left, "other").state is State.QUEUED
    assert [pool.stop() for pool in pools] == [0, 0]


def test_a_burst_ends_when_jobs_in_new_queues_have_run(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    ids = [site.put("work", queue="default", id="0")]
    ids += [site.put("work", queue=f"tenant-{n}", id=str(n)) for n in range(1, 30)]
    assert site.pool("--burst").process.wait(60) == 0
    for n in range(30):
        assert site.info(str(n), f"tenant-{n}" if n else "default").state is State.SUCCEEDED


def test_a_drain_takes_the_queues_that_are_there_when_it_starts(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    for n in range(30):
        site.put("work", queue=f"tenant-{n}", id=str(n))
    assert site.pool("--drain").process.wait(60) == 0
    assert {site.info(str(n), f"tenant-{n}").state for n in range(30)} == {State.SUCCEEDED}


def test_a_stop_while_queues_appear_loses_nothing(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    pool = site.pool(processes=2)
    site.wait(site.put("work"))
    names = [f"tenant-{n}" for n in range(40)]
    for n, name in enumerate(names):
        site.put("work", 20, queue=name, id=name)
        if n == 20:
            site.wait("tenant-0", queue="tenant-0")
            pool.process.send_signal(signal.SIGTERM)
    assert pool.process.wait(30) == 0
    states = {site.info(name, name).state for name in names}
    assert states <= {State.QUEUED, State.SUCCEEDED}
    rest = site.pool("--burst")
    assert rest.process.wait(60) == 0
    assert {site.info(name, name).state for name in names} == {State.SUCCEEDED}
    assert [attempt.outcome for name in names for attempt in site.info(name, name).attempts if attempt.outcome] == []


def test_jobs_of_a_killed_process_in_a_new_queue_run_again(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    site.pool()
    site.wait(site.put("work"))
    flag = site.folder / "died"
    id = site.put("dies_once", str(flag), queue="tenant-1")
    assert site.wait(id, queue="tenant-1", seconds=30).crashes == 1


def test_the_limit_of_the_longest_pattern_holds(make_site: Callable[..., WorkerSite]) -> None:
    site = make_site()
    pool = site.pool(threads=8)
    ids = [site.put("work", 100, queue="tenant-small-1") for _ in range(5)]
    for id in ids:
        site.wait(id, queue="tenant-small-1", seconds=20)
    assert pool.stop() == 0
    assert [event.kind for event in site.ledger.read()] == ["start", "end"] * 5


@pytest.mark.survival
def test_workers_of_a_cluster_find_new_queues(make_site: Callable[..., WorkerSite], pace: Pace) -> None:
    with running_cluster() as setting:
        site = make_site(setting)
        pool = site.pool()
        site.wait(site.put("work"))
        for name in ("tenant-1", "tenant-2", "tenant-3"):
            began = monotonic()
            site.wait(site.put("work", queue=name), queue=name, seconds=20)
            pace.within(began, FOUND, f"{name} is served")
        assert pool.stop() == 0
        site.close()
