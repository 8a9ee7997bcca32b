"""Queues that no running worker serves: they have left the settings, or their workers have died.

Jobs wait there until a worker comes; what needs no worker of the queue goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from time import monotonic
from typing import Any

import pytest

from django_jobs.conf import QueueSettings
from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import pair
from django_jobs.worker.maintenance.process import MaintenanceProcess
from tests.contract.acts import LEASE, done
from tests.integration.workers import WorkerSite, site
from tests.support.waiting import wait_until

__all__ = ["site"]

Maintain = Callable[..., MaintenanceProcess]


@pytest.fixture
def maintain(store: Store) -> Iterator[Maintain]:
    """Make the maintenance of one more worker, which serves these queues."""
    with ExitStack() as stack:

        def make(*queues: str) -> MaintenanceProcess:
            ends = [stack.enter_context(closing(end)) for end in pair()]
            return MaintenanceProcess(store, WorkerConfig(queues=[*map(QueueSettings, queues)]), [], ends[1])

        yield make


def work(process: MaintenanceProcess) -> list[str]:
    """Do what is due.  Returns the queues that the process looks after."""
    for tasks in (*(each.tasks for each in process.task_threads), process.tasks):
        for _ in range(30):
            tasks.step(monotonic())
    return process.tasks.queues


@pytest.mark.parametrize("why", ["it has left the settings", "its worker died"])
def test_jobs_of_a_dead_worker_are_taken_back_there_by_any_other(site: WorkerSite, make_job: Any, why: str) -> None:
    site.jobs_settings["QUEUES"] = {"default": {}, "old": {}}
    doomed = site.pool("--queues", "old")
    again = site.put("until_stopped", queue="old")
    once = make_job(name="until_stopped", at_most_once=True, unique=64 * "a", unique_mode="running", on_dead="work")
    late = make_job(expires_at=site.store.now() + 2_000)
    site.store.enqueue("old", [once, late._replace(run_at=site.store.now() + 3_600_000)])
    site.ledger.wait("start", 2, seconds=10)
    doomed.kill_all()
    wait_until(lambda: not site.store.workers(), "nobody believes that it lives", seconds=8)
    if why == "it has left the settings":
        site.jobs_settings["QUEUES"] = {"default": {}}
    pool = site.pool("--queues", "default")
    site.wait(once.id, State.DEAD, queue="old", seconds=8)
    site.wait(late.id, State.EXPIRED, queue="old", seconds=8)
    wait_until(lambda: site.store.stats(["default"])[0].totals.get("enqueued"), "what follows from the death follows")
    (added,) = site.store.enqueue("old", [make_job(unique=64 * "a", unique_mode="running")])
    assert added == "added", "its unique key is free"
    assert site.wait(again, State.QUEUED, queue="old", seconds=8).crashes == 1
    assert [each.id for each in site.ledger.read() if each.kind == "start"].count(again) == 1
    assert pool.stop() == 0


def test_old_jobs_are_deleted_there(store: Store, make_job: Any, clock: Any, maintain: Maintain) -> None:
    store.enqueue("gone", [make_job("one")])
    store.complete("gone", [done(each) for each in store.claim("gone", "w", 1, lease=LEASE).claims])
    clock.advance(store.options.history_ttl + 1)
    work(maintain("mine"))
    assert store.get("gone", "one") is None


def test_one_process_looks_after_them_while_nobody_serves_them(
    store: Store, make_job: Any, clock: Any, maintain: Maintain
) -> None:
    for queue in ("mine", "of-another", "found-by-another", "frozen", "stopping", "gone"):
        store.enqueue(queue, [make_job()])
    for name, state, queues in (("a", "running", ["of-another"]), ("b", "stopping", ["stopping"])):
        store.publish_worker(name, {"state": state, "queues": queues, "patterns": ["found-*"]}, 2 * LEASE)
    assert work(maintain("mine")) == ["mine", "frozen", "gone", "stopping"]
    assert work(maintain("mine")) == ["mine"]
    clock.advance(LEASE + 1)  # the first has died, and the workers have not reported for a lease
    assert work(maintain("mine")) == ["mine", "found-by-another", "frozen", "gone", "of-another", "stopping"]
