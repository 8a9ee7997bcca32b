"""Django's tasks framework on our engine: its documented behaviour, and what our engine adds."""

from __future__ import annotations

import logging
import pickle
from datetime import date, time, timedelta
from decimal import Decimal
from enum import IntEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import UUID

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone
from django.utils.safestring import SafeString

from django_jobs.core import discovery
from django_jobs.core.values import Lane, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.exceptions import InvalidJob
from django_jobs.execution.executor import Executor
from django_jobs.serialization.record import decode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store

if django.VERSION < (6, 0) and find_spec("django_tasks") is None:
    pytest.skip("needs Django 6 or the django-tasks backport", allow_module_level=True)

from django_jobs.tasks_backend import JobsBackend
from django_jobs.tasks_backend.compat import (
    BaseTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from tests import tasks_project
from tests.tasks_project import add, add_later, anything, break_down, no_json, nothing, put_off, tell

DummyBackend: Any = import_module(f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy").DummyBackend


class OurBackend(JobsBackend):
    """As a project may extend it."""


@pytest.fixture(autouse=True)
def _in_use(redis_store: Store, clock: Any) -> None:
    clock.now = int(timezone.now().timestamp() * 1000)
    use_store(redis_store)
    tasks_project.ran.clear()


@pytest.fixture
def run(redis_store: Store) -> Any:
    """Run what is ready, in the order workers would."""

    def run_all() -> int:
        executor, count = Executor(close_connections=False), 0
        for lane in (Lane.SHARED, Lane.ALONE):
            while claims := redis_store.claim("default", "tester", 1, lane=lane, lease=30_000).claims:
                executor.run(claims[0], redis_store)
                count += 1
        return count

    return run_all


class Heard:
    """What a signal said, while it is listened to."""

    def __init__(self, signal: Any) -> None:
        self.signal, self.said = signal, []

    def __enter__(self) -> list[Any]:
        self.signal.connect(self._hear)
        return self.said

    def __exit__(self, *_: object) -> None:
        self.signal.disconnect(self._hear)

    def _hear(self, sender: Any, task_result: Any, **_: Any) -> None:
        self.said.append((sender, task_result.status, task_result.id))


def test_every_capability_flag_is_true() -> None:
    backend = add.get_backend()
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_task_is_ready_then_successful_with_its_value(run: Any) -> None:
    result = add.enqueue(2, b=3)
    assert result.status == TaskResultStatus.READY
    assert result.attempts == 0
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    assert run() == 1
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, result.attempts, result.errors) == (5, 1, [])
    assert result.finished_at is not None
    assert result.started_at is not None


def test_the_result_read_back_equals_the_one_enqueue_returned() -> None:
    later = timezone.now() + timedelta(hours=1)
    result = add.using(priority=7, run_after=later).enqueue(2, b=3)
    assert add.get_result(result.id) == result


def test_a_failed_task_keeps_its_error_and_is_not_tried_again(run: Any) -> None:
    result = break_down.enqueue("no such order")
    run()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == 1
    assert result.errors[0].exception_class is ValueError
    assert "no such order" in result.errors[0].traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_job_options_give_a_task_more_attempts(run: Any) -> None:
    result = break_down.using(backend="committed").enqueue("again")
    run()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)


def test_options_may_be_given_to_one_use_of_a_task(run: Any, redis_store: Store) -> None:
    result = break_down.using(max_attempts=2).enqueue("again")
    run()
    info = redis_store.get("default", result.id)
    assert info is not None
    assert info.state is State.RETRY


@pytest.mark.parametrize(
    "options",
    [
        {"backoff": [1]},
        {"soft_timeout": 5},
        {"sensitive": ["a"]},
        {"retry_on": OSError},
        {"keep_result": 0},
        {"max_concurrency": 2},
        {"concurrency_key": "a"},
    ],
)
def test_what_workers_look_up_by_name_cannot_differ_from_call_to_call(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match="applies to every call of a task"):
        add.using(**options)


@pytest.mark.parametrize("options", [{"max_atempts": 3}, {"timeout": -1}, {"delivery": "often"}])
def test_options_of_one_use_are_checked_where_they_are_written(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match=next(iter(options))):
        add.using(**options)


def test_options_of_one_use_travel_with_its_call(redis_store: Store) -> None:
    result = add.using(max_attempts=4, timeout=3, expires_in=60, delivery="at_least_once", keep_result=9).enqueue(1)
    info = redis_store.get("default", result.id)
    assert info is not None
    job = decode(info.id, info.queue, info.record)
    assert (job.options.max_attempts, job.options.timeout) == (4, 3000)
    assert job.controls.keep_result == 9000


def test_async_tasks_run(run: Any) -> None:
    result = add_later.enqueue(1)
    run()
    result.refresh()
    assert result.return_value == 2


def test_the_async_calls_do_the_same() -> None:
    async def use() -> bool:
        result = await add.aenqueue(1)
        return (await add.aget_result(result.id)) == result

    assert async_to_sync(use)()


def test_the_context_tells_attempt_and_result(run: Any) -> None:
    result = tell.enqueue("hello")
    run()
    result.refresh()
    assert result.return_value == ["hello", 1, result.id]


def test_higher_priority_runs_first_and_equals_in_order(run: Any) -> None:
    for number, priority in enumerate([0, -100, 100, 0, 5]):
        add.using(priority=priority).enqueue(number)
    run()
    assert [a for a, _ in tasks_project.ran] == [2, 4, 0, 3, 1]


@pytest.mark.parametrize("when", [timedelta(minutes=5), "datetime"])
def test_a_deferred_task_waits_for_its_time(when: Any, run: Any, clock: Any) -> None:
    run_after = timezone.now() + timedelta(minutes=5) if when == "datetime" else when
    result = add.using(run_after=run_after).enqueue(1)
    assert run() == 0
    clock.advance(301_000)
    assert run() == 1
    assert add.get_result(result.id).status == TaskResultStatus.SUCCESSFUL


def test_arguments_come_back_as_json_makes_them(run: Any) -> None:
    result = anything.enqueue((1, 2), b"bytes", key={"a": (1,)})
    assert result.args == [[1, 2], "bytes"]
    run()
    result.refresh()
    assert result.return_value == [[[1, 2], "bytes"], {"key": {"a": [1]}}]


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "comes_back"),
    [
        ({1: 2}, {"1": 2}),
        ({None: 1, True: 2, 1.5: 3}, {"null": 1, "true": 2, "1.5": 3}),
        ({"$date": "2026-01-01"}, {"$date": "2026-01-01"}),
        ({"deep": [{2: (3,)}]}, {"deep": [{"2": [3]}]}),
        (Colour.RED, 1),
        (SafeString("text"), "text"),
        (range(3), [0, 1, 2]),
    ],
)
def test_arguments_and_results_become_what_json_makes_of_them(value: Any, comes_back: Any, run: Any) -> None:
    result = anything.enqueue(value, key=value)
    assert (result.args, result.kwargs) == ([comes_back], {"key": comes_back})
    run()
    result.refresh()
    assert result.return_value == [[comes_back], {"key": comes_back}]
    assert (result.args, result.kwargs) == ([comes_back], {"key": comes_back})


@pytest.mark.parametrize(
    "value",
    [
        object(),
        timezone.now(),
        date(2026, 1, 1),
        Decimal(1),
        UUID(int=1),
        {1, 2},
        b"\xff",
        timedelta(1),
        [{"a": time(1)}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_djangos_own_backends_refuse_is_refused_in_the_caller(value: Any) -> None:
    theirs = DummyBackend("dummy", {})
    with pytest.raises((TypeError, ValueError)) as expected:
        theirs.enqueue(anything, (value,), {})
    with pytest.raises(expected.type):
        anything.enqueue(value)


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        anything.enqueue(float("nan"))


def test_signals_are_sent_with_the_backend_class_as_sender(run: Any) -> None:
    with Heard(task_enqueued) as enqueued, Heard(task_started) as started, Heard(task_finished) as finished:
        good, bad = add.enqueue(1), break_down.enqueue("x")
        run()
    backend = type(add.get_backend())
    assert enqueued == [(backend, TaskResultStatus.READY, good.id), (backend, TaskResultStatus.READY, bad.id)]
    assert started == [(backend, TaskResultStatus.RUNNING, good.id), (backend, TaskResultStatus.RUNNING, bad.id)]
    assert finished == [
        (backend, TaskResultStatus.SUCCESSFUL, good.id),
        (backend, TaskResultStatus.FAILED, bad.id),
    ]


def test_a_task_that_will_be_tried_again_is_not_finished(run: Any) -> None:
    with Heard(task_finished) as finished:
        break_down.using(backend="committed").enqueue("x")
        run()
    assert [status for _, status, _ in finished] == [TaskResultStatus.FAILED]


@pytest.mark.parametrize(("backend", "heard"), [("default", []), ("once", [TaskResultStatus.FAILED])])
def test_a_snooze_ends_a_task_only_where_it_is_delivered_at_most_once(
    backend: str, heard: list[TaskResultStatus], run: Any
) -> None:
    with Heard(task_finished) as finished:
        result = put_off.using(backend=backend).enqueue()
        run()
    result.refresh()
    assert [status for _, status, _ in finished] == heard
    assert (result.status == TaskResultStatus.FAILED) == bool(heard)


def test_the_frameworks_log_has_the_traceback_of_a_failure(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    break_down.enqueue("see me in the log")
    with caplog.at_level(logging.INFO):
        run()
    assert "see me in the log" in caplog.text


def test_an_unknown_result_does_not_exist() -> None:
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result("0" * 32)


def test_a_job_that_is_no_task_has_no_task_result(redis_store: Store, make_job: Any) -> None:
    redis_store.enqueue("default", [make_job("plain")])
    with pytest.raises(TaskResultDoesNotExist):
        add.get_backend().get_result("plain")


@pytest.mark.django_db(transaction=True)
def test_tasks_are_enqueued_at_once_unless_told_otherwise(redis_store: Store) -> None:
    with transaction.atomic():
        now = add.enqueue(1)
        later = add.using(backend="committed").enqueue(2)
        assert redis_store.get("default", now.id)
        assert redis_store.get("default", later.id) is None
    assert redis_store.get("default", later.id)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks are pickled from Django 6.1 on")
def test_tasks_and_results_can_be_pickled() -> None:
    result = add.using(priority=3, max_attempts=4).enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301 - our own bytes


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="the decorator of Django 6.0 takes no other options")
def test_the_decorator_takes_our_options() -> None:
    made: Any = tasks_project.task(max_attempts=5, timeout=3, backoff=[1], priority=4)(tasks_project.add.func)
    assert (made.max_attempts, made.timeout, made.backoff, made.priority) == (5, 3, [1], 4)


def test_a_subclass_of_the_backend_is_found_like_the_backend_itself(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.OurBackend"}}
    assert discovery.module_names() == ["jobs", "tasks"]
    settings.TASKS = {"default": {"BACKEND": f"{DummyBackend.__module__}.DummyBackend"}}
    assert discovery.module_names() == ["jobs"]


def test_a_result_of_none_is_kept_with_its_worker(run: Any, redis_store: Store) -> None:
    result = nothing.enqueue()
    run()
    result.refresh()
    assert (result.return_value, result.worker_ids) == (None, ["tester"])
    assert JobHandle(result.id, "x", "default").wait(0) is None


def test_the_context_of_a_later_attempt_names_the_workers_before(run: Any, redis_store: Store) -> None:
    result = tell.using(max_attempts=2).enqueue("hello")
    (lost,) = redis_store.claim("default", "lost", 1, lease=30_000).claims
    assert redis_store.recover("default", worker="lost")
    assert lost.id == result.id
    with Heard(task_started) as started:
        run()
    result.refresh()
    assert (result.return_value[1], result.worker_ids, len(started)) == (2, ["lost", "tester"], 1)


def test_checks_name_what_is_wrong_with_the_setting(settings: Any) -> None:
    from django_jobs.tasks_backend import JobsBackend

    backend = JobsBackend("x", {"QUEUES": ["nowhere"], "OPTIONS": {"TYPO": 1, "JOB_OPTIONS": {"max_attemts": 2}}})
    assert [found.id for found in backend.check()] == ["django_jobs.E080", "django_jobs.E081", "django_jobs.E082"]
    assert add.get_backend().check() == []


@pytest.mark.parametrize("what", ["set", "large"])
def test_a_task_that_returned_what_json_cannot_hold_has_failed_and_never_runs_again(run: Any, what: str) -> None:
    result = no_json.enqueue(what)
    assert run() == 1
    result.refresh()
    assert result.status is TaskResultStatus.FAILED
    assert "is not run again" in result.errors[0].traceback
    assert tasks_project.ran == [what]
