"""The trace of the code that enqueued a job reaches remote workers, in claims and in posts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs import remote
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.docs.pages import ROOT, module_of
from tests.integration.api.conftest import SETTINGS, Api
from tests.integration.api.receiver import receiving

sentry_sdk = pytest.importorskip("sentry_sdk")
module_of(ROOT / "docs" / "howto" / "observability.md", "recipes_of_remote_workers")


@pytest.fixture
def traced(store: Store, settings: Any) -> Iterator[None]:
    """A project with the documented enqueue middleware; its events go nowhere."""
    settings.DJANGO_JOBS = {**SETTINGS, "ENQUEUE_MIDDLEWARE": ["recipes_of_remote_workers.publish"]}
    use_store(store)
    sentry_sdk.init(
        dsn="http://public@127.0.0.1:9/1",
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
        before_send_transaction=lambda event, hint: None,
    )
    yield
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def put_in_a_trace(api: Api, path: str) -> str:
    """PUT a job within a transaction; the id of its trace."""
    with sentry_sdk.start_transaction(op="http.server", name="checkout") as transaction:
        assert api.put(path, {"data": 1}).status_code == 201
        trace_id: str = transaction.trace_id
        return trace_id


def continued(meta: dict[str, str]) -> str:
    """The id of the trace that a worker continues with what it was sent."""
    assert set(meta) == {"sentry-trace", "baggage"}
    trace_id: str = sentry_sdk.continue_trace(meta, op="queue.process").trace_id
    return trace_id


def test_a_claim_gives_the_trace_to_each_attempt(
    traced: None, api: Api, kind: str, claim: Callable[..., list[dict[str, Any]]], clock: Clock
) -> None:
    wanted = {id: put_in_a_trace(api, f"v1/jobs/{kind}/{id}") for id in ("a", "b")}
    assert len(set(wanted.values())) == 2
    for attempt in (1, 2):
        jobs = claim(limit=2)
        assert {job["id"]: continued(job["meta"]) for job in jobs} == wanted
        for job in jobs:
            assert job["attempt"] == attempt
            failed = {"status": "failed", "token": job["token"]}
            assert api.post(f"v1/jobs/{kind}/{job['id']}", failed).status_code == 200
        clock.advance(3_600_000)


def test_a_posted_job_brings_the_trace_with_it(
    traced: None, api: Api, work_off: Callable[..., int], settings: Any
) -> None:
    with receiving() as receiver:
        made = api.post("v1/job-types", {"name": "node.mail", "queue": "push", "url": receiver.url})
        assert made.status_code == 201, made.content
        remote.forget()
        wanted = put_in_a_trace(api, "v1/jobs/node.mail/1")
        assert work_off("push") == 1
        (got,) = receiver.got
    assert continued(got["meta"]) == wanted
