"""Bodies that come in chunks, slowly, or not at all: no action does more than its whole body asks for."""

from __future__ import annotations

import json
import socket
from io import BytesIO
from typing import Any

import pytest
from django.core.wsgi import get_wsgi_application

from django_jobs.models import ApiToken
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api.conftest import ALL, SETTINGS, Api

ONE_TYPE = b'{"job": "tests.greet"}'


@pytest.fixture
def store(redis_store: Store, settings: Any) -> Store:
    """One kind of store will do here."""
    settings.DJANGO_JOBS = SETTINGS
    use_store(redis_store)
    return redis_store


class Chunks(BytesIO):
    """What a server gives an application that reads a body in chunks: some bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size if size is not None and size >= 0 else 7, 7))


class Slow:
    """A body of which nothing has come yet."""

    def read(self, *_: Any) -> bytes:
        pytest.fail("The body of a stranger was read.")

    readline = readlines = __iter__ = read


def wsgi(method: str, path: str, stream: Any, secret: str = "", **more: Any) -> tuple[int, Any]:
    """Call the application as a WSGI server does."""
    environ = {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": f"/jobs/{path}", "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http", "wsgi.input": stream, "wsgi.errors": BytesIO(), "wsgi.multithread": True,
        "wsgi.multiprocess": True, "wsgi.run_once": False, "CONTENT_TYPE": "application/json",
        "HTTP_AUTHORIZATION": f"Bearer {secret}", **more,
    }  # fmt: skip
    told: list[str] = []
    answer: Any = get_wsgi_application()(environ, lambda status, headers: told.append(status))
    return int(told[0].split()[0]), json.loads(b"".join(answer))


CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked"}


@pytest.fixture
def secret(store: Store) -> str:
    return ApiToken.objects.issue("any", ALL)[1]


def test_a_body_in_chunks_is_read_whole(store: Store, secret: str) -> None:
    more = {**CHUNKED, "wsgi.input_terminated": True}
    status, queue = wsgi("POST", "v1/queues/default/pause", Chunks(ONE_TYPE), secret, **more)
    assert (status, queue["paused"], queue["paused_jobs"]) == (200, False, ["tests.greet"])


def test_a_body_in_chunks_may_not_be_longer_than_another(secret: str) -> None:
    more = {**CHUNKED, "wsgi.input_terminated": True}
    assert wsgi("POST", "v1/queues/default/pause", Chunks(b" " * 262_145), secret, **more)[0] == 413


@pytest.mark.parametrize("error", [OSError, ValueError, EOFError, type("InvalidChunk", (Exception,), {})])
def test_chunks_that_the_server_cannot_read_are_the_fault_of_the_client(secret: str, error: type[Exception]) -> None:
    class Broken(Slow):
        def read(self, *_: Any) -> bytes:
            raise error("x\r\n")

    more = {**CHUNKED, "wsgi.input_terminated": True}
    assert wsgi("POST", "v1/queues/default/pause", Broken(), secret, **more)[0] == 400


def test_where_the_server_cannot_read_chunks_the_answer_is_411_and_nothing_happens(store: Store, secret: str) -> None:
    status, problem = wsgi("POST", "v1/queues/default/pause", Chunks(ONE_TYPE), secret, **CHUNKED)
    assert (status, problem["type"]) == (411, "urn:problem-type:django-jobs:length-required")
    assert store.stats(["default"])[0].paused is None


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_empty_body_does_not_stand_for_a_whole_queue(api: Api, store: Store, verb: str) -> None:
    store.pause("default")
    assert api.post(f"v1/queues/default/{verb}").status_code == 422
    assert store.stats(["default"])[0].paused is not None
    assert api.post(f"v1/queues/default/{verb}", {}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "v1/schedules/settings:nightly/pause"), ("POST", "v1/schedules/settings:nightly/resume"),
     ("PUT", "v1/schedules/settings:nightly/runs/1"), ("POST", "v1/jobs/tests.greet/1/replay"),
     ("POST", "v1/queues/default/pause"), ("POST", "v1/queues/default/resume"),
     ("POST", "v1/jobs/tests.greet/1/kill"), ("POST", "v1/jobs/tests.greet/1/retry")],
)  # fmt: skip
def test_a_body_that_says_more_than_the_call_understands_is_refused(api: Api, method: str, path: str) -> None:
    assert api(method, path, {"only_if": 1}).status_code == 422


def test_delete_takes_no_body(api: Api, store: Store) -> None:
    api.put("v1/jobs/tests.greet/1", {"data": ["Ada"]})
    assert api("DELETE", "v1/jobs/tests.greet/1", {"only_if": "queued"}).status_code == 400
    assert api.get("v1/jobs/1").json()["state"] == "queued"


@pytest.mark.parametrize("secret", ["", "djt_wrong"])
@pytest.mark.parametrize("path", ["v1/queues/default/pause", "healthz", "v1/nothing", "v1/jobs/tests.greet/1"])
def test_the_body_of_a_stranger_is_not_waited_for(store: Store, path: str, secret: str) -> None:
    assert wsgi("POST", path, Slow(), secret, CONTENT_LENGTH="100")[0] in {401, 404, 405}


def test_over_a_socket_a_stranger_who_sends_nothing_more_is_answered(
    transactional_db: None, store: Store, live_server: Any
) -> None:
    head = b"POST /jobs/v1/queues/default/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((live_server.thread.host, live_server.thread.port), timeout=60) as connection:
        connection.sendall(head + b"Content-Length: 22\r\n\r\n")
        assert b" 401 " in connection.recv(65_536).split(b"\r\n")[0]
