"""Enqueueing from views under WSGI and ASGI: the real handlers, sync and async views, inside transactions and not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.test import override_settings

from django_jobs.stores import get_store

#: path → (status, body)
Get = Callable[[str], tuple[int, bytes]]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _site() -> Iterator[None]:
    with override_settings(ROOT_URLCONF="tests.integration.web_views", MIDDLEWARE=[], DJANGO_JOBS={"STORE": "memory"}):
        yield


def get_from_wsgi(path: str) -> tuple[int, bytes]:
    answered: list[str] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> None:
        answered.append(status)

    environ: dict[str, Any] = {"PATH_INFO": path, "HTTP_HOST": "testserver"}
    setup_testing_defaults(environ)
    response = get_wsgi_application()(environ, start_response)
    body = b"".join(response)
    response.close()  # type: ignore[attr-defined]
    return int(answered[0].split()[0]), body


async def _get_from_asgi(path: str) -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"testserver")],
    }
    server = ApplicationCommunicator(get_asgi_application(), scope)
    await server.send_input({"type": "http.request", "body": b""})
    start = await server.receive_output(timeout=60)
    body = (await server.receive_output(timeout=60))["body"]
    await server.wait(timeout=60)
    return start["status"], body


def get_from_asgi(path: str) -> tuple[int, bytes]:
    return async_to_sync(_get_from_asgi)(path)


@pytest.fixture(params=[get_from_wsgi, get_from_asgi], ids=["wsgi", "asgi"])
def get(request: pytest.FixtureRequest) -> Get:
    """Ask for a page of the real application."""
    found: Get = request.param
    return found


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)


def stored() -> int:
    (stats,) = get_store().stats(["default"])
    return sum(stats.counts.values())


def states(answer: tuple[int, bytes]) -> dict[str, str]:
    """What the view saw: job id → state."""
    status, body = answer
    assert status == 200, body
    seen: dict[str, str] = json.loads(body)
    assert all(get_store().get("default", id) for id in seen), "they are there once the page is"
    return seen


@pytest.mark.parametrize("page", ["/plain", "/async-plain"])
def test_a_view_enqueues_at_once(get: Get, page: str) -> None:
    seen = states(get(page))
    assert set(seen.values()) == {"queued"}
    assert stored() == len(seen)


@pytest.mark.parametrize("page", ["/commits", "/async-commits"])
def test_a_transaction_in_a_view_is_waited_for(get: Get, page: str) -> None:
    # The answer was made inside the transaction.
    assert list(states(get(page)).values()) == ["deferred"]
    assert stored() == 1


@pytest.mark.parametrize("page", ["/fails", "/async-fails"])
def test_a_transaction_that_fails_in_a_view_enqueues_nothing(get: Get, page: str) -> None:
    assert get(page)[0] == 500
    assert stored() == 0


@pytest.mark.usefixtures("atomic_requests")
def test_atomic_requests_are_waited_for(get: Get) -> None:
    assert list(states(get("/plain")).values()) == ["deferred"]
    assert get("/fails")[0] == 500
    assert stored() == 1
