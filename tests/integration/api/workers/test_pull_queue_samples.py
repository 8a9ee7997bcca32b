"""Queues that only workers over HTTP serve: what a `runworkers` of the project does for them."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobs.samples.log import COARSE, FINE
from django_jobs.stores.redis import Store
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.maintenance import agenda
from tests.contract.acts import LEASE, done
from tests.integration.api.conftest import SETTINGS


def succeed(store: Store, make_job: Any, queue: str, id: str) -> None:
    store.enqueue(queue, [make_job(id)])
    (claimed,) = store.claim(queue, "remote:1", 1, lease=LEASE).claims
    store.complete(queue, [done(claimed)])


def test_it_samples_the_queues_that_nobody_else_does(
    store: Store, make_job: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agenda, "pull_queues", lambda: frozenset({"pull", "mine"}))
    clock.now -= clock.now % COARSE
    for id in ("one", "two"):
        for queue in ("pull", "mine"):
            succeed(store, make_job, queue, id)
        assert agenda.sample_pull_queues(store, ["mine"]) == 0
        clock.advance(FINE)
    found = store.samples(["pull", "mine"], FINE)
    assert found["mine"].log is None, "the worker's own maintenance takes these"
    log = found["pull"].log
    assert log is not None
    assert log.at == clock.now - FINE
    assert [list(counts.values()) for _, counts in log.spans if counts] == [[(1, 0, 0)]]


def test_without_such_queues_the_store_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "pull_queues", lambda: frozenset({"mine"}))
    assert agenda.sample_pull_queues(None, ["mine"]) == 0  # type: ignore[arg-type]


def test_it_is_a_task_of_each_worker_of_a_project_with_an_api(settings: Any, store: Store) -> None:
    settings.DJANGO_JOBS = SETTINGS
    works = [getattr(task, "work", None) for task in agenda.tasks_for(store, WorkerConfig(queues=()))]
    assert agenda.sample_pull_queues in [getattr(work, "func", None) for work in works]


def test_it_does_what_follows_from_ends_in_queues_that_nobody_else_serves(
    store: Store, make_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example of a job that a person cancels there, which no worker reports."""
    monkeypatch.setattr(agenda, "pull_queues", lambda: frozenset({"pull"}))
    store.enqueue("pull", [make_job("one", on_end="sample.chain")])
    store.cancel("pull", ["one"])
    assert store.unread(["pull"]) == ["pull"]
    for task in agenda.tasks_for(store, WorkerConfig(queues=())):
        if isinstance(task, agenda.RepeatedTask) and task.pause == agenda.WORKFLOWS:
            task.tick()
    assert store.unread(["pull"]) == []
    assert store.stats(["default"])[0].counts["queued"] == 1
