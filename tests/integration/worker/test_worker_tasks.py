"""Tasks of Django's framework in real workers: whatever ends one, task_finished says so."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import django
import pytest

from django_jobs.core.values import State
from django_jobs.stores import use_store
from tests.integration.workers import WorkerSite, site
from tests.support.ledger import Event
from tests.support.waiting import wait_until

if django.VERSION < (6, 0) and find_spec("django_tasks") is None:
    pytest.skip("needs Django 6 or the django-tasks backport", allow_module_level=True)

from django_jobs.tasks_backend.compat import TaskResultStatus
from tests.integration.worker_project.background import end

__all__ = ["site"]


@pytest.fixture(autouse=True)
def _here(site: WorkerSite) -> Iterator[None]:
    """This process enqueues there, too."""
    use_store(site.store)
    yield
    use_store(None)


def told(site: WorkerSite, id: str) -> Event:
    def found() -> list[Event]:
        return [event for event in site.ledger.read() if event.kind == "finished" and event.id == id]

    wait_until(lambda: len(found()) == 1, f"{id} is told of")
    return found()[0]


@pytest.mark.parametrize(
    ("how", "options", "said"),
    [
        ("return", {}, "Backend/SUCCESSFUL/"),
        ("sleep", {"timeout": 0.3}, "Backend/FAILED/TimeoutError"),
        ("kill", {"timeout": 60}, "Backend/FAILED/JobFailed,JobFailed,JobFailed"),
        ("kill", {"delivery": "at_most_once"}, "Backend/FAILED/JobFailed"),
    ],
    ids=["return", "time limit", "crash", "at most once"],
)
def test_whatever_ends_a_task_its_end_is_told_once(
    site: WorkerSite, how: str, options: dict[str, Any], said: str
) -> None:
    site.pool()
    result = end.using(**options).enqueue(how)
    assert told(site, result.id).name == said
    result.refresh()
    assert str(result.status) in said
    assert len(result.errors) == len(result.worker_ids) - (result.status == TaskResultStatus.SUCCESSFUL)


def test_a_result_names_the_worker_of_every_attempt(site: WorkerSite) -> None:
    site.pool("--name", "shop")
    once, twice = end.enqueue("return"), end.using(max_attempts=2).enqueue("twice")
    site.wait(twice.id, State.RETRY)
    site.store.revive("default", [twice.id])
    for result, attempts in ((once, 1), (twice, 2)):
        site.wait(result.id)
        result.refresh()
        assert result.attempts == attempts
        assert [name.split(":")[0] for name in result.worker_ids] == ["shop"] * attempts
        assert result.return_value in ("return", "twice")


def test_a_task_killed_by_a_person_is_told_as_failed(site: WorkerSite) -> None:
    from django_jobs import operations

    site.pool()
    result = end.using(timeout=60).enqueue("sleep")
    site.wait(result.id, State.RUNNING)
    heard: list[Any] = []

    def hear(task_result: Any, **_: Any) -> None:
        heard.append((task_result.id, task_result.status))

    from django_jobs.tasks_backend.compat import task_finished

    task_finished.connect(hear)
    try:
        operations.kill("default", [result.id], "by hand")
        wait_until(lambda: heard, "the end is told")
    finally:
        task_finished.disconnect(hear)
    assert heard == [(result.id, TaskResultStatus.FAILED)]
