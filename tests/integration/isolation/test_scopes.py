"""Jobs of several tenants: each meets its own rows, its own limits, and no equal job of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import override_settings

from django_jobs import InvalidArguments, job
from django_jobs.core.context import RunningJob
from django_jobs.core.values import Job, State
from django_jobs.enqueueing.handle import JobHandle
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.operations.edited import record_with
from django_jobs.serialization.model_references import ModelReference
from django_jobs.serialization.record import decode
from django_jobs.testing import Jobs
from tests.integration.enqueueing import SETTINGS, stored

tenant = "acme"
seen: list[Any] = []


def of_tenant(get_next: Callable[[NewJobRequest], JobHandle]) -> Callable[[NewJobRequest], JobHandle]:
    def layer(new_job: NewJobRequest) -> JobHandle:
        new_job.scope = tenant
        return get_next(new_job)

    return layer


def in_tenant(get_next: Callable[[RunningJob], Any]) -> Callable[[RunningJob], Any]:
    """Each tenant has a group with the key 1: the middleware writes what a search path would show."""

    def layer(running: RunningJob) -> Any:
        seen.append((running.scope, list(running.args)))
        Group.objects.update_or_create(pk=1, defaults={"name": running.scope})
        return get_next(running)

    return layer


@job(name="tests.scopes.greet")
def greet(group: Group, nested: dict[str, Any]) -> list[str]:
    return [group.name, nested["groups"][0].name]


@job(name="tests.scopes.agreet")
async def agreet(group: Group, nested: dict[str, Any]) -> list[str]:
    return [group.name, nested["groups"][0].name]


@job(name="tests.scopes.limited", unique="queued", max_concurrency=1)
def limited(number: int) -> None: ...


@job(name="tests.scopes.by_key", max_concurrency=1, concurrency_key="number")
def by_key(number: int) -> None: ...


@pytest.fixture(autouse=True)
def middleware() -> Iterator[None]:
    seen.clear()
    paths = {"ENQUEUE_MIDDLEWARE": [f"{__name__}.of_tenant"], "MIDDLEWARE": [f"{__name__}.in_tenant"]}
    with override_settings(DJANGO_JOBS={**SETTINGS, **paths}):
        yield


@pytest.fixture
def as_tenant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda name: monkeypatch.setattr(f"{__name__}.tenant", name)


def record_of(handle: JobHandle) -> Job:
    return stored(handle)


@pytest.mark.django_db
@pytest.mark.parametrize("task", [greet, agreet], ids=lambda task: task.name)
def test_model_instances_are_those_of_the_tenant_that_the_middleware_chose(
    jobs: Jobs, as_tenant: Callable[[Any], None], task: Any
) -> None:
    group = Group.objects.create(pk=1, name="acme")
    as_tenant("globex")
    handle = task.enqueue(group, {"groups": [group]})
    jobs.run_all()
    assert handle.refresh().result == ["globex", "globex"]
    ((scope, args),) = seen
    assert (scope, type(args[0]), args[0].model, args[0].pk) == ("globex", ModelReference, Group, 1)


def test_equal_jobs_of_two_tenants_are_two_jobs_with_two_limits(jobs: Jobs, as_tenant: Callable[[Any], None]) -> None:
    handles = [limited.enqueue(1)]
    as_tenant("globex")
    handles += [limited.enqueue(1), limited.enqueue(1)]
    assert [handle.state for handle in handles] == [State.QUEUED, State.QUEUED, "duplicate"]
    assert len({record_of(handle).controls.limit_key for handle in handles[:2]}) == 2
    by_keys = [by_key.enqueue(1)]
    as_tenant("acme")
    by_keys.append(by_key.enqueue(1))
    assert len({record_of(handle).controls.limit_key for handle in by_keys}) == 2


def test_an_edit_keeps_the_keys_of_the_scope(jobs: Jobs) -> None:
    job = record_of(limited.enqueue(1))
    record = record_with(job, [[2], {}])
    assert record is not None
    assert decode(job.id, job.queue, record).controls == record_of(limited.enqueue(2)).controls


@pytest.mark.parametrize("scope", ["x" * 101, "a\nb", 7])
def test_a_scope_that_cannot_be_stored_is_refused(jobs: Jobs, as_tenant: Callable[[Any], None], scope: Any) -> None:
    as_tenant(scope)
    with pytest.raises(InvalidArguments, match="printable text of at most 100 characters"):
        limited.enqueue(1)
