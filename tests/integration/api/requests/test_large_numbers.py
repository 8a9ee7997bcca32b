"""Whole numbers with more digits than Python writes into JSON: they come as text, and nothing fails because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs import enqueue, job
from django_jobs.core import registry
from django_jobs.execution.executor import Executor
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import Api
from tests.integration.api.receiver import receiving

LARGE = 10**5000


@job(name="tests.large", api=True)
def large(value: int = 0) -> int:
    return value or LARGE


registry.unregister(large.name)


@pytest.fixture(autouse=True)
def offered(_api: None) -> Iterator[None]:
    registry.register(large)
    yield
    registry.unregister(large.name)


@pytest.mark.parametrize("value", [LARGE, -LARGE, 10**4250], ids=["large", "negative", "just written"])
def test_a_job_and_its_result_are_shown(api: Api, work_off: Callable[..., int], value: int) -> None:
    large.using(job_id="1", on_commit=False).enqueue(value)
    assert api.get("v1/jobs/tests.large/1").status_code == 200
    assert api.get("v1/jobs?state=queued").status_code == 200
    work_off()
    found = api.get("v1/jobs/tests.large/1").json()
    for each in (found["result"], *found["data"]):
        assert (int(each, 16) if isinstance(each, str) else each) == value


def test_a_worker_gets_the_job_and_those_beside_it(
    api: Api, kind: str, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        enqueue(kind, LARGE)
    api.put(f"v1/jobs/{kind}/beside")
    answer = api.post("v1/queues/pull/claim", {"limit": 9})
    assert answer.status_code == 200, answer.content
    assert sorted(str(job["data"]) for job in answer.json()["jobs"]) == sorted([hex(LARGE), "None"])


def test_a_receiver_gets_the_job(api: Api, store: Store, django_capture_on_commit_callbacks: Any) -> None:
    with receiving() as receiver:
        api.post("v1/job-types", {"name": "php.push", "queue": "push", "url": receiver.url})
        with django_capture_on_commit_callbacks(execute=True):
            enqueue("php.push", [LARGE])
        (held,) = store.claim("push", "worker", 1, lease=30_000).claims
        Executor(close_connections=False, clock=store.now).run(held, store)
    assert [each["data"] for each in receiver.got] == [[hex(LARGE)]]
