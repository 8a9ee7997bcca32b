"""Queues that only workers over HTTP serve: what a `runworkers` of the project does for them."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.conf import QueueSettings
from django_jobs.core.values import Ended, State
from django_jobs.exceptions import UnknownJob
from django_jobs.models import ArchivedJob, RemoteJobType
from django_jobs.remote import type_cache
from django_jobs.samples.log import COARSE, FINE
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.ipc import pair
from django_jobs.worker.maintenance import agenda
from django_jobs.worker.maintenance.process import MaintenanceProcess
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.contract.acts import FAILED, LEASE, done


def succeed(store: Store, make_job: Any, queue: str, id: str) -> None:
    store.enqueue(queue, [make_job(id)])
    (claimed,) = store.claim(queue, "remote:1", 1, lease=LEASE).claims
    store.complete(queue, [done(claimed)])


def look_after(store: Store) -> None:
    """Do what the maintenance of a worker that has just started finds to do."""
    tasks = MaintenanceTasks(store, ["mine"], LEASE, others=lambda: {"pull", "mine"})
    for _ in range(30):
        tasks.step(monotonic())


def test_it_looks_after_them_as_after_its_own(store: Store, make_job: Any, clock: Any) -> None:
    clock.now -= clock.now % COARSE
    for id in ("one", "two"):
        for queue in ("pull", "mine"):
            succeed(store, make_job, queue, id)
        look_after(store)
        clock.advance(FINE)
    for found in store.samples(["pull", "mine"], FINE).values():
        assert found.log is not None
        assert found.log.at == clock.now - FINE
        assert [list(counts.values()) for _, counts in found.log.spans if counts] == [[(1, 0, 0)]]
    store.enqueue("pull", [make_job("late", expires_at=clock() + 1000)])
    clock.advance(1000)
    look_after(store)
    late = store.get("pull", "late")
    assert late is not None
    assert late.state == State.EXPIRED
    clock.advance(store.options.history_ttl + 1)
    look_after(store)
    assert store.get("pull", "one") is None


def test_the_maintenance_of_a_worker_finds_them_in_the_store(store: Store, make_job: Any) -> None:
    RemoteJobType.objects.create(name="php.mail", queue="pull")
    ends = pair()
    process = MaintenanceProcess(store, WorkerConfig(queues=(QueueSettings("default"),)), [], ends[1])
    store.enqueue("pull", [make_job(name="php.mail")])
    for tasks in (process.task_threads[0].tasks, process.tasks):
        tasks.step(monotonic())
    assert process.tasks.queues == ["default", "pull"]
    for end in ends:
        end.close()


def do_tasks(store: Store, *pauses: float) -> None:
    """Do these tasks once, as the maintenance of a worker does that serves no queue with jobs."""
    for task in agenda.tasks_for(store, WorkerConfig(queues=())):
        if isinstance(task, agenda.RepeatedTask) and task.pause in pauses:
            task.tick()


@pytest.mark.parametrize("queue", ["pull", "has-left-the-settings"])
def test_jobs_that_nobody_reports_there_fail_in_time_and_go_to_the_archive(
    store: Store, make_job: Any, clock: Any, queue: str
) -> None:
    store.enqueue(queue, [make_job("ended"), make_job("posted", max_attempts=1)])
    store.cancel(queue, ["ended"])
    store.claim(queue, "remote", 1, lease=LEASE, lease_each=True)
    for _ in range(2):
        clock.advance(LEASE + 1)
        do_tasks(store, agenda.REMOTE, agenda.ARCHIVE)
    assert dict(ArchivedJob.objects.values_list("job_id", "status")) == {"ended": "cancelled", "posted": "dead"}


@pytest.mark.parametrize("queue", ["pull", "has-left-the-settings"])
def test_it_does_what_follows_from_ends_in_queues_that_nobody_else_serves(
    store: Store, make_job: Any, queue: str
) -> None:
    """For example of a job that a person cancels there, which no worker reports; or that goes on in another queue."""
    store.enqueue(queue, [make_job("one", on_end="sample.chain"), make_job("two")])
    store.cancel(queue, ["one"])
    (held,) = store.claim(queue, "w", 1, lease=LEASE).claims
    store.settle(queue, [Ended(held, "retry", FAILED, queue="default")])
    assert store.unread([queue]) == [queue]
    do_tasks(store, agenda.WORKFLOWS)
    assert store.unread([queue]) == []
    counts = store.stats(["default"])[0].counts
    assert (counts["queued"], counts["retry"]) == (1, 1)


@pytest.fixture
def is_told(monkeypatch: pytest.MonkeyPatch, time: Any) -> None:
    """As in the processes of a worker: the database is read now and then, and not for a name that is not known."""
    monkeypatch.setattr(type_cache._known, "is_told", True)
    monkeypatch.setattr(type_cache._known, "clock", time)
    monkeypatch.setattr(type_cache._known, "missed", {})


@pytest.mark.usefixtures("is_told")
def test_the_ends_of_jobs_are_told_whose_types_nobody_knows_any_more(
    store: Store, make_job: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.enqueue("pull", [make_job(id, name=f"gone.{id}", expires_at=clock() + 1000) for id in ("one", "two")])
    clock.advance(1000)
    caplog.set_level("INFO", "django_jobs.worker")
    look_after(store)
    said = [each for each in caplog.messages if "expired" in each or "failed" in each]
    assert [each.split()[0] for each in said] == ["gone.one", "gone.two"]


@pytest.mark.usefixtures("is_told")
def test_attempts_end_and_what_follows_follows_though_nobody_knows_the_types_any_more(
    store: Store, make_job: Any, clock: Any, time: Any
) -> None:
    """A task of maintenance that fails is repeated after a minute."""
    store.enqueue("pull", [make_job("posted", name="gone", max_attempts=1)])
    store.claim("pull", "remote", 1, lease=LEASE, lease_each=True)
    store.enqueue("old", [make_job("first", on_end="gone.too"), make_job("second", on_end="sample.chain")])
    store.cancel("old", ["first", "second"])
    clock.advance(LEASE + 1)
    for _ in range(3):
        remote.read()
        time.now += 1
        with suppress(UnknownJob):
            do_tasks(store, agenda.REMOTE)
        with suppress(UnknownJob):
            do_tasks(store, agenda.WORKFLOWS)
        time.now += 59
    posted = store.get("pull", "posted")
    assert posted is not None
    assert posted.state == State.DEAD
    assert store.stats(["default"])[0].counts["queued"] == 1
