"""EAGER answers like workers do: what ran where it was enqueued is found by its id."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from django_jobs import Batch, Fail, Retry, aget_job, chain, current_batch, current_job, get_job, get_workflow, job
from django_jobs.exceptions import DuplicateJob, JobNotFound, WorkflowNotFound
from django_jobs.stores.embedded.store import MemoryStore
from django_jobs.stores.values.options import StoreOptions

pytestmark = pytest.mark.django_db(transaction=True)
#: A store that nobody can reach: eager jobs need none.
EAGER: dict[str, Any] = {"STORE": "redis://nowhere.invalid:1/0", "EAGER": True}
needs_tasks = pytest.mark.skipif(
    django.VERSION < (6, 0) and find_spec("django_tasks") is None, reason="needs Django 6 or the django-tasks backport"
)
seen: list[Any] = []


@job(name="eager.look", max_attempts=3)
def look(what: str) -> str:
    match what:
        case "itself":
            seen.append(get_job(current_job().id).state)
        case "its batch":
            seen.append(get_workflow(current_job().workflow or "").state)
        case "retries":
            raise Retry(in_=60)
        case "dies":
            raise Fail(what)
    return what


@job(name="eager.alone", max_concurrency=1)
def alone(number: int) -> int:
    if number:
        with current_batch():
            seen.append(alone.enqueue(number - 1))
    return number


@job(name="eager.once", max_attempts=2)
def once(what: str, again: Any = None) -> None:
    if again == "again":
        seen.append(once.using(unique="running").enqueue(what, again).state)
    if again == "fails":
        raise ValueError(what)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    seen.clear()
    with override_settings(DJANGO_JOBS=EAGER):
        yield


@pytest.mark.parametrize(
    ("what", "state"), [("one", "succeeded"), ("dies", "dead"), ("retries", "retry")], ids=["one", "dies", "retries"]
)
def test_a_job_is_found_by_its_id_with_how_it_ended(what: str, state: str) -> None:
    handle = look.enqueue(what)
    found = get_job(handle.id)
    assert (found, found.name, found.state, found.error) == (handle, "eager.look", state, handle.error)
    assert found.refresh().state == get_job(handle.id, queue="default").state == state
    assert async_to_sync(aget_job)(handle.id).result == handle.result


def test_a_job_of_a_transaction_is_found_after_the_commit() -> None:
    with transaction.atomic():
        handle = look.enqueue("one")
    assert get_job(handle.id).result == "one"


def test_a_job_finds_itself_running() -> None:
    look.enqueue("itself")
    assert seen == ["running"]


def test_an_id_that_comes_again_is_the_newest_job() -> None:
    look.using(job_id="order-7").enqueue("dies")
    with override_settings(DJANGO_JOBS=EAGER):
        look.using(job_id="order-7").enqueue("itself")
        assert (seen, get_job("order-7").state) == (["running"], "succeeded")


def test_an_id_of_the_callers_is_one_job_also_in_a_transaction_and_in_a_batch() -> None:
    order = look.using(job_id="order-7")
    first = order.enqueue("itself")
    with transaction.atomic():
        waiting = order.enqueue("dies")
    with Batch("all") as batch:
        member = order.enqueue("dies")
    (one_of_many,) = order.enqueue_many([("dies",)])
    assert (seen, order.enqueue("dies"), async_to_sync(order.aenqueue)("dies")) == (["running"], first, first)
    for again in (waiting, member, one_of_many, order.enqueue("dies")):
        assert (again.id, again.state, again.result) == ("order-7", "succeeded", "itself")
    assert batch.handle.counts["live"] == 0


def test_an_id_of_a_job_that_failed_is_not_used_again() -> None:
    assert [look.using(job_id="order-7").enqueue(what).state for what in ("dies", "one")] == ["dead"] * 2


def test_a_workflow_is_found_and_so_are_the_jobs_of_its_steps() -> None:
    id = chain(look.s("one"), look.s("two")).enqueue().id
    gc.collect()
    found = get_workflow(id)
    assert (found.state, found.wait(1)) == ("succeeded", "two")
    assert [get_job(step.job_id).result for step in found.steps] == ["one", "two"]


def test_a_batch_is_found_while_it_runs_and_after_that() -> None:
    with Batch("all") as batch:
        look.enqueue("its batch")
        waiting = look.enqueue("retries")
    id = batch.id
    del batch
    gc.collect()
    assert (seen, get_workflow(id).state, get_job(waiting.id).state) == (["running"], "running", "retry")


def test_a_handle_sees_that_its_job_ran_when_there_was_room() -> None:
    with Batch("all"):
        alone.enqueue(2)
    assert len(seen) == 2
    assert [handle.refresh().state for handle in seen] == ["succeeded"] * 2


def test_a_job_of_a_batch_that_waits_can_be_cancelled() -> None:
    with Batch("all"):
        handle = look.enqueue("retries")
    assert handle.cancel()
    assert (handle.refresh().state, get_job(handle.id).state) == ("cancelled", "cancelled")


@needs_tasks
@pytest.mark.parametrize(("backend", "in_the_block"), [("default", "SUCCESSFUL"), ("committed", "READY")])
def test_the_result_of_a_task_can_be_read(backend: str, in_the_block: str) -> None:
    from tests.tasks_project import add

    with transaction.atomic():
        result = add.using(backend=backend).enqueue(1, b=2)
        if in_the_block == "SUCCESSFUL":
            result.refresh()
        assert result.status == in_the_block
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)
    assert async_to_sync(add.aget_result)(result.id) == add.get_result(result.id) == result


@needs_tasks
def test_the_result_of_a_task_that_failed_has_its_error() -> None:
    from tests.tasks_project import break_down

    ended, waiting = break_down.enqueue("x"), break_down.using(max_attempts=2).enqueue("x")
    ended.refresh()
    waiting.refresh()
    assert (ended.status, ended.errors[0].exception_class) == ("FAILED", ValueError)
    assert (waiting.status, waiting.attempts) == ("READY", 1)


def test_what_one_test_left_is_unknown_to_the_next_as_is_an_id_that_nobody_has() -> None:
    ids = look.enqueue("one").id, chain(look.s("one"), look.s("two")).enqueue().id
    assert (get_job(ids[0]).state, get_workflow(ids[1]).state) == ("succeeded", "succeeded")
    with override_settings(DJANGO_JOBS={"STORE": "memory", "EAGER": True}):
        with pytest.raises(JobNotFound):
            get_job(ids[0])
        with pytest.raises(WorkflowNotFound):
            get_workflow(ids[1])


def test_temporary_stores_do_not_pile_up() -> None:
    beside = MemoryStore(StoreOptions())
    keys = beside.transport.client.dbsize
    for _ in range(200):
        chain(look.s("one"), look.s("two")).enqueue()
    gc.collect()
    most = keys()
    for _ in range(200):
        chain(look.s("one"), look.s("two")).enqueue()
    gc.collect()
    assert keys() < most * 1.5


@pytest.mark.parametrize(
    ("unique", "again", "states"),
    [
        ("queued", None, ["succeeded", "succeeded"]),
        ("queued", "fails", ["retry", "duplicate"]),
        ("success", "fails", ["retry", "duplicate"]),
        ("success", None, ["succeeded", "succeeded"]),
        ("running", "again", ["succeeded", "succeeded"]),
        (timedelta(hours=1), None, ["succeeded", "duplicate"]),
    ],
)
def test_a_unique_key_holds_as_long_as_with_workers(unique: Any, again: Any, states: list[str]) -> None:
    using = once.using(unique=unique)
    first, second, other = using.enqueue("it", again), using.enqueue("it", again), using.enqueue("other", None)
    assert [first.state, second.state, other.state] == [*states, "succeeded"]
    assert (second.id == first.id) is (second.state == "duplicate")
    assert seen == ["duplicate"] * (2 if again == "again" else 0)
    assert get_job(first.id).state == states[0]


def test_a_unique_job_that_holds_its_key_may_raise_as_a_duplicate() -> None:
    using = once.using(unique=timedelta(hours=1), on_conflict="raise")
    using.enqueue("it")
    with pytest.raises(DuplicateJob):
        using.enqueue("it")
    with override_settings(DJANGO_JOBS={**EAGER, "QUEUES": {"default": {}, "other": {}}}):
        assert using.using(queue="other").enqueue("it").state == "succeeded"  # a key is of its queue
