"""The test kit takes tasks as it takes jobs: those of Django's framework, and those of the Celery layer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import django
import pytest

if django.VERSION < (6, 0) and find_spec("django_tasks") is None:
    pytest.skip("needs Django 6 or the django-tasks backport", allow_module_level=True)

from django_jobs.compat.celery import Celery
from django_jobs.tasks_backend.compat import TaskResultStatus
from django_jobs.testing import Jobs
from tests.tasks_project import add, anything, nothing

app = Celery("kit")


@app.task(name="kit.layer")
def of_layer(a: int) -> int:
    return a


def test_a_task_is_found_by_its_call(jobs: Jobs) -> None:
    add.enqueue(1, b=2)
    jobs.assert_enqueued(add, [1], {"b": 2}, queue="default", count=1)
    jobs.assert_enqueued(add, kwargs={"a": 1, "b": 2})
    assert [job.kwargs for job in jobs.enqueued(name=add)] == [{"b": 2}]
    jobs.assert_not_enqueued(nothing)
    with pytest.raises(AssertionError, match=r"found 0 times: tests\.tasks_project\.add\(2\)"):
        jobs.assert_enqueued(add, [2])


def test_a_task_is_found_by_what_was_passed_although_json_has_made_something_else_of_it(jobs: Jobs) -> None:
    anything.enqueue((1, 2), b"bytes", key={1: (2,)})
    jobs.assert_enqueued(anything, [(1, 2), b"bytes"], {"key": {1: (2,)}})
    jobs.assert_enqueued(anything, [[1, 2], "bytes"], {"key": {"1": [2]}})


def test_a_task_of_another_backend_is_another_job(jobs: Jobs) -> None:
    add.using(backend="committed").enqueue(1)
    jobs.assert_not_enqueued(add)
    jobs.assert_enqueued(add.using(backend="committed", priority=3), [1])


def test_the_next_attempt_of_a_task_can_be_made_to_fail(jobs: Jobs) -> None:
    other, result = nothing.enqueue(), add.enqueue(1)
    jobs.fail_next(add, OSError("away"))
    jobs.run_all()
    result.refresh()
    other.refresh()
    assert (result.status, other.status) == (TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL)


def test_a_task_of_the_celery_layer_is_found(jobs: Jobs) -> None:
    of_layer.delay(7)
    jobs.assert_enqueued(of_layer, [7], count=1)
    jobs.assert_not_enqueued(add)


@pytest.mark.parametrize("wrong", [len, 7, object()], ids=["function", "number", "object"])
def test_what_is_no_job_is_refused_with_words(jobs: Jobs, wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no job: pass a function with @job"):
        jobs.assert_enqueued(wrong)
