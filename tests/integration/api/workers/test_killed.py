"""A remote attempt that was killed: what it holds is free when its worker reports, or when its lease has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import Batch, enqueue, operations
from django_jobs.core.values import Lane, State
from django_jobs.execution.executor import Executor
from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.api import work
from tests.integration.api.conftest import Api
from tests.integration.api.receiver import receiving

ONE = {"name": "php.one", "queue": "pull", "concurrency": 1}


def claimed(api: Api, lease: int = 3600) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = api.post("v1/queues/pull/claim", {"limit": 9, "lease": lease}).json()["jobs"]
    return jobs


@pytest.fixture
def killed(api: Api) -> dict[str, Any]:
    """The claim of job 1, which was killed while its worker ran it; job 2 waits behind it."""
    api.post("v1/job-types", ONE)
    api.put("v1/jobs/php.one/1")
    api.put("v1/jobs/php.one/2")
    (job,) = claimed(api)
    assert api.post("v1/jobs/php.one/1/kill").json()["state"] == "dead"
    assert claimed(api) == []
    return job


@pytest.mark.parametrize("status", ["succeeded", "failed"])
@pytest.mark.parametrize("named", [("token",), ("attempt",), ("token", "attempt")])
def test_its_report_is_refused_and_lets_the_next_job_start(
    api: Api, killed: dict[str, Any], named: tuple[str, ...], status: str
) -> None:
    answer = api.post("v1/jobs/php.one/1", {"status": status} | {key: killed[key] for key in named})
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "attempt-over")
    assert api.get("v1/jobs/1").json()["state"] == "dead"
    assert [job["id"] for job in claimed(api)] == ["2"]


def test_the_same_in_a_call_with_many_reports(api: Api, killed: dict[str, Any]) -> None:
    report = {"name": "php.one", "id": "1", "status": "succeeded", "token": killed["token"]}
    (answer,) = api.post("v1/reports", {"reports": [report]}).json()["reports"]
    assert answer["status"] == 409
    assert [job["id"] for job in claimed(api)] == ["2"]


def test_one_that_was_retried_by_hand_runs_when_the_report_has_come(api: Api, killed: dict[str, Any]) -> None:
    assert api.post("v1/jobs/php.one/1/retry").json()["state"] == "blocked"
    assert claimed(api) == []
    api.post("v1/jobs/php.one/1", {"status": "succeeded", "token": killed["token"]})
    (first,) = claimed(api)
    assert first["attempt"] > killed["attempt"] or first["id"] == "2"
    assert api.get("v1/jobs/1").json()["state"] != "succeeded"


def test_its_batch_ends_when_the_report_has_come(
    api: Api, work_off: Callable[..., int], django_capture_on_commit_callbacks: Any
) -> None:
    api.post("v1/job-types", ONE)
    with django_capture_on_commit_callbacks(execute=True), Batch(on_complete=work.greet.s("batch")):
        enqueue("php.one", 1)
    (job,) = claimed(api)
    api.post(f"v1/jobs/php.one/{job['id']}/kill")
    work_off()
    assert work.ran == []
    api.post(f"v1/jobs/php.one/{job['id']}", {"status": "failed", "token": job["token"]})
    work_off()
    assert work.ran == [("batch", "Hello")]


@pytest.mark.parametrize("body", [{"token": 1_000_000}, {"attempt": 7}, {"attempt": 1, "token": 1_000_000}])
def test_a_report_of_another_attempt_frees_nothing(api: Api, killed: dict[str, Any], body: dict[str, int]) -> None:
    assert api.post("v1/jobs/php.one/1", {"status": "succeeded"} | body).status_code == 409
    assert claimed(api) == []


def test_without_a_report_the_next_job_starts_after_the_lease(
    api: Api, store: Store, killed: dict[str, Any], clock: Clock
) -> None:
    clock.advance(3_601_000)
    RemoteWatch(store, lambda: ["pull"]).tick()
    store.recover("pull")
    assert [job["id"] for job in claimed(api)] == ["2"]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_one_that_is_killed_while_it_is_posted_is_its_receivers(api: Api, store: Store, delivery: str) -> None:
    lane = Lane.ALONE if delivery == "at_most_once" else Lane.SHARED

    def claim() -> list[Any]:
        return store.claim("push", "worker", 1, lane=lane, lease=30_000).claims

    with receiving() as receiver:
        api.post("v1/job-types", ONE | {"queue": "push", "url": receiver.url, "delivery_strategy": delivery})
        api.put("v1/jobs/php.one/1")
        api.put("v1/jobs/php.one/2")
        receiver.then = lambda body: operations.kill("push", ["1"], "by hand") and None
        (held,) = claim()
        Executor(close_connections=False, clock=store.now).run(held, store)
    assert store.get("push", "1").state is State.DEAD  # type: ignore[union-attr]
    # The worker has nothing to end any more: it would end the process, and the jobs beside it.
    assert store.extend("push", ["worker"], 30_000) == {"worker": []}
    assert claim() == []
    api.post("v1/jobs/php.one/1", {"status": "succeeded", "token": receiver.got[0]["token"]})
    assert [each.id for each in claim()] == ["2"]
