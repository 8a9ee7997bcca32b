"""The recipes for Sentry and structlog work with the real libraries."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import job
from django_jobs.execution.executor import Executor
from django_jobs.stores import use_store
from django_jobs.stores.contract.store import Store
from tests.docs.pages import ROOT, module_of

sentry_sdk = pytest.importorskip("sentry_sdk")
structlog = pytest.importorskip("structlog")

seen: list[Any] = []


@job(name="tests.recipes.look")
def look(fail: bool = False) -> None:
    seen.append(structlog.contextvars.get_contextvars())
    if fail:
        raise ValueError("the recipe shows me")


@pytest.fixture(scope="module")
def recipes() -> ModuleType:
    """The middleware of the page, by name."""
    return module_of(ROOT / "docs" / "howto" / "observability.md", "observability_recipes")


def run_all(store: Store, *middleware: Any) -> None:
    executor = Executor(middleware=middleware, close_connections=False)
    while claims := store.claim("default", "tester", 1, lease=30_000).claims:
        executor.run(claims[0], store)


@pytest.mark.accepts("G05", "G25")
def test_structlog_carries_the_requests_context_into_the_job(recipes: Any, memory_store: Store) -> None:
    seen.clear()
    use_store(memory_store)
    jobs_settings = {"STORE": "memory", "ENQUEUE_MIDDLEWARE": ["observability_recipes.carry"]}
    with override_settings(DJANGO_JOBS=jobs_settings):
        use_store(memory_store)
        with structlog.contextvars.bound_contextvars(request_id="r-1", password="never"):
            handle = look.enqueue()
        run_all(memory_store, recipes.bind)
    assert seen == [{"request_id": "r-1", "job_id": handle.id, "job": "tests.recipes.look", "attempt": 1}]


def test_sentry_sees_one_trace_from_the_request_to_the_job(recipes: Any, memory_store: Store) -> None:
    sent: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []

    def keep(into: list[dict[str, Any]]) -> Any:
        def before_send(event: dict[str, Any], hint: Any) -> None:
            into.append(event)

        return before_send

    sentry_sdk.init(
        dsn="http://public@127.0.0.1:9/1",
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
        before_send_transaction=keep(sent),
        before_send=keep(errors),
    )
    try:
        with override_settings(
            DJANGO_JOBS={"STORE": "memory", "ENQUEUE_MIDDLEWARE": ["observability_recipes.publish"]}
        ):
            use_store(memory_store)
            with sentry_sdk.start_transaction(op="http.server", name="checkout"):
                handle = look.enqueue(fail=True)
            run_all(memory_store, recipes.process)
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.init()
    request, attempt = sent
    published, processed = request["spans"][0], attempt["spans"][0]
    assert (published["op"], processed["op"]) == ("queue.publish", "queue.process")
    assert published["data"]["messaging.message.id"] == processed["data"]["messaging.message.id"] == handle.id
    assert processed["data"]["messaging.message.retry.count"] == 0
    assert request["contexts"]["trace"]["trace_id"] == attempt["contexts"]["trace"]["trace_id"]
    assert errors[0]["exception"]["values"][0]["value"] == "the recipe shows me"
