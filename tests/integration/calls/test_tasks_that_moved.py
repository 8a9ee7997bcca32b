"""Tasks whose backend, or whose queue, is not in TASKS as this process would write it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import django
import pytest
from django.conf import settings as django_settings

from django_jobs import Retry
from django_jobs.core import registry
from django_jobs.core.values import Lane, State
from django_jobs.enqueueing.handle import get_job
from django_jobs.testing import Jobs

if django.VERSION < (6, 0) and find_spec("django_tasks") is None:
    pytest.skip("needs Django 6 or the django-tasks backport", allow_module_level=True)

from django_jobs.tasks_backend.compat import TaskResultDoesNotExist, TaskResultStatus, task_finished
from tests import tasks_project
from tests.tasks_project import add, tell

BACKEND = "django_jobs.tasks_backend.JobsBackend"
NAME = "tests.tasks_project.add"
QUEUES = {"default": {}, "mail": {}, "slow": {}}


@pytest.fixture(autouse=True)
def _forgotten(settings: Any) -> Any:
    settings.DJANGO_JOBS = {**django_settings.DJANGO_JOBS, "QUEUES": QUEUES}
    tasks_project.ran.clear()
    yield
    another_process(settings)


def another_process(settings: Any, **backends: dict[str, Any]) -> None:
    """TASKS as another process has it, which has called no `using(backend=…)`."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}, **backends}
    for name in registry.names():
        if name.startswith("tests.tasks_project.") and ":" in name:
            registry.unregister(name)
    registry.changed()


MAIL = {"BACKEND": BACKEND, "QUEUES": ["mail"]}


def test_a_worker_runs_a_task_of_a_backend_that_refuses_the_tasks_own_queue(jobs: Jobs, settings: Any) -> None:
    another_process(settings, mail=MAIL)
    result = add.using(backend="mail", queue_name="mail").enqueue(3)
    another_process(settings, mail=MAIL)
    jobs.run_all()
    result.refresh()
    assert (result.status, result.return_value, result.backend) == (TaskResultStatus.SUCCESSFUL, 4, "mail")


def test_a_task_of_an_unknown_backend_waits_for_a_worker_that_knows_it(jobs: Jobs, settings: Any) -> None:
    another_process(settings, mail=MAIL)
    result = add.using(backend="mail", queue_name="mail").enqueue(3)
    another_process(settings)
    jobs.run_all()
    assert get_job(result.id).state == State.BLOCKED
    with pytest.raises(TaskResultDoesNotExist):
        add.get_backend().get_result(result.id)
    another_process(settings, mail=MAIL)
    jobs.run_all()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_a_name_that_only_looks_like_one_with_a_backend_is_unknown() -> None:
    assert registry.find(f"{NAME}:nobody") is None


def test_workers_with_other_backends_know_other_names(settings: Any) -> None:
    another_process(settings)
    without = registry.digest()
    another_process(settings, mail=MAIL)
    assert registry.digest() != without


def test_the_first_claim_of_a_worker_has_the_limits_of_every_backend(jobs: Jobs, settings: Any) -> None:
    limited = {**MAIL, "OPTIONS": {"JOB_OPTIONS": {"max_concurrency": 1}}}
    another_process(settings, mail=limited)
    for number in range(3):
        add.using(backend="mail", queue_name="mail").enqueue(number)
    another_process(settings, mail=limited)
    claimed = jobs.store.claim("mail", "w", 3, lane=Lane.SHARED, lease=30_000, limits=registry.limits())
    assert len(claimed.claims) == 1


def test_a_task_that_has_another_backend_of_its_own_since_still_runs(jobs: Jobs, settings: Any) -> None:
    another_process(settings, mail={"BACKEND": BACKEND})
    result = add.using(backend="mail").enqueue(3)
    another_process(settings, mail={"BACKEND": BACKEND})
    first = registry.get(NAME)
    try:
        registry.unregister(NAME)
        add.using(backend="mail")  # as @task(backend="mail") does
        jobs.run_all()
        result.refresh()
    finally:
        registry.unregister(NAME)
        registry.register(first)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 4)


def test_a_task_runs_in_a_queue_that_tasks_has_no_more(jobs: Jobs, settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "slow"]}}
    result = tell.using(queue_name="slow").enqueue("hello")
    another_process(settings)
    finished: list[Any] = []

    def hear(task_result: Any, **_: Any) -> None:
        finished.append(task_result.id)

    task_finished.connect(hear)
    jobs.run_all()
    task_finished.disconnect(hear)
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, ["hello", 1, result.id])
    assert tell.get_result(result.id).task.queue_name == "slow"
    assert finished == [result.id]


def test_a_retry_may_move_a_task_to_a_queue_that_tasks_does_not_have(
    jobs: Jobs, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_process(settings)
    result = add.using(max_attempts=2).enqueue(3)
    jobs.fail_next(error=Retry("elsewhere", in_=0, queue="slow"))
    jobs.run_all()
    result.refresh()
    assert (result.status, result.return_value, len(result.errors)) == (TaskResultStatus.SUCCESSFUL, 4, 1)
    assert get_job(result.id).queue == "slow"


def test_the_limits_of_tasks_are_made_once_and_not_at_each_claim() -> None:
    registry.limits()  # may be the first to ask for a task of another backend
    registry.limits()
    assert registry.limits() is registry.limits()
