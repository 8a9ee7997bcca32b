"""A job that the reconciler had to give up is told of like any other that died."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from django_jobs.core.values import NewJob
from django_jobs.events.signal_events import SignalEvent
from django_jobs.signals import job_dead
from django_jobs.stores.redis import Store
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.contract.operating.test_repair import misplace


def test_a_job_whose_place_was_lost_is_announced_as_dead_once(
    redis_store: Store, make_job: Callable[..., NewJob]
) -> None:
    redis_store.enqueue("default", [make_job("once", at_most_once=True), make_job("again")])
    misplace(redis_store, "once")
    misplace(redis_store, "again")
    told: list[SignalEvent] = []

    def listen(**more: object) -> None:
        """Without a receiver nothing is delivered."""

    job_dead.connect(listen)
    try:
        for _ in range(2):
            tasks = MaintenanceTasks(redis_store, ["default"], 30_000, deliver=told.append)
            for _ in range(6):
                tasks.step(monotonic())
    finally:
        job_dead.disconnect(listen)
    ((signal, name, queue, id, *_),) = told
    assert (signal, name, queue, id) == ("job_dead", "tests.job", "default", "once")
    assert told[0].more["outcome"] == "misplaced"
