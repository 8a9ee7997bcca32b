"""The recipes for Sentry, structlog and ASGI servers work with the real libraries."""

from __future__ import annotations

import asyncio
import json
import threading
from types import ModuleType
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.http import HttpRequest
from django.test import override_settings

from django_jobs import job
from django_jobs.api.common.principal import Principal
from django_jobs.execution.executor import Executor
from django_jobs.remote import type_cache
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.docs.pages import ROOT, blocks, module_of

sentry_sdk = pytest.importorskip("sentry_sdk")
structlog = pytest.importorskip("structlog")
pytest.importorskip("a2wsgi")

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
def test_structlog_carries_the_requests_context_into_the_job(recipes: Any, redis_store: Store) -> None:
    seen.clear()
    use_store(redis_store)
    jobs_settings = {"STORE": "memory", "ENQUEUE_MIDDLEWARE": ["observability_recipes.carry"]}
    with override_settings(DJANGO_JOBS=jobs_settings):
        use_store(redis_store)
        with structlog.contextvars.bound_contextvars(request_id="r-1", password="never"):
            handle = look.enqueue()
        run_all(redis_store, recipes.bind)
    assert seen == [{"request_id": "r-1", "job_id": handle.id, "job": "tests.recipes.look", "attempt": 1}]


def test_sentry_sees_one_trace_from_the_request_to_the_job(recipes: Any, redis_store: Store) -> None:
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
            use_store(redis_store)
            with sentry_sdk.start_transaction(op="http.server", name="checkout"):
                handle = look.enqueue(fail=True)
            run_all(redis_store, recipes.process)
    finally:
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
    request, attempt = sent
    published, processed = request["spans"][0], attempt["spans"][0]
    assert (published["op"], processed["op"]) == ("queue.publish", "queue.process")
    assert published["data"]["messaging.message.id"] == processed["data"]["messaging.message.id"] == handle.id
    assert processed["data"]["messaging.message.retry.count"] == 0
    assert request["contexts"]["trace"]["trace_id"] == attempt["contexts"]["trace"]["trace_id"]
    (error,) = errors[0]["exception"]["values"]
    assert error["value"] == "the recipe shows me"
    assert error["stacktrace"]["frames"]
    assert all("vars" not in frame for frame in error["stacktrace"]["frames"])


def called() -> None:
    """It is enqueued, and not run."""


def partner(request: HttpRequest) -> Principal | None:
    seen.append(threading.current_thread())
    known = request.headers.get("X-Partner-Key") == "p"
    return (
        Principal("partner", frozenset({"enqueue"}), frozenset({"tests.recipes.called"}), by_header=True)
        if known
        else None
    )


PARTNER = {"STORE": "memory", "API": {"AUTHORIZER": "tests.docs.test_recipes.partner"}}


async def ask(application: Any, path: str, body: bytes = b"", *headers: tuple[bytes, bytes]) -> tuple[int, Any]:
    """PUT as an ASGI server does."""
    scope = {
        "type": "http", "http_version": "1.1", "method": "PUT", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("localhost", 80),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
    }  # fmt: skip
    call = ApplicationCommunicator(application, scope)
    await call.send_input({"type": "http.request", "body": body})
    start = await call.receive_output(10)
    content = b""
    while (part := await call.receive_output(10)).get("more_body"):
        content += part["body"]
    await call.wait(10)
    return start["status"], json.loads(content) if content.startswith(b"{") else content


@override_settings(DJANGO_JOBS=PARTNER, ROOT_URLCONF="tests.integration.api.urls")
def test_an_asgi_site_serves_the_api_in_threads_that_stay(
    redis_store: Store, empty_registry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type_cache, "read_rows", list)  # there is no database
    job(name="tests.recipes.called", api=True)(called)
    (recipe,) = (
        each for each in blocks(ROOT / "docs" / "howto" / "http-api.md", "python") if each.code.startswith("# asgi.py")
    )
    module = ModuleType("asgi_recipe")
    exec(recipe.code.replace("workers=16", "workers=1"), module.__dict__)
    use_store(redis_store)
    seen.clear()
    key = (b"x-partner-key", b"p")
    body = b'{"data": {}}'

    async def use() -> list[tuple[int, Any]]:
        path = "/jobs/v1/jobs/tests.recipes.called/"
        whole = (b"content-length", str(len(body)).encode())
        return [
            await ask(module.application, path + "1", body, key, whole),
            await ask(module.application, path + "2", body, key, whole),
            await ask(module.application, path + "3", body, key, (b"transfer-encoding", b"chunked")),
            await ask(module.application, path + "4", body, whole),
            await ask(module.application, "/elsewhere", body, whole),
        ]

    try:
        answers = asyncio.run(use())
    finally:
        module.api.executor.shutdown()
    assert [status for status, _ in answers] == [201, 201, 411, 401, 404]
    assert redis_store.stats(["default"])[0].counts["queued"] == 2
    assert len(set(seen)) == 1, "each request must not have a thread of its own"
    assert seen[0] is not threading.main_thread()
