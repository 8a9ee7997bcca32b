"""A client of the API with a token, over each kind of store."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from django_jobs import remote
from django_jobs.core.values import Lane
from django_jobs.execution.executor import Executor
from django_jobs.models import ApiToken
from django_jobs.remote import type_cache
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.integration.api import work

SETTINGS: dict[str, Any] = {
    "STORE": "memory",
    "QUEUES": {"default": {}, "small": {"MAX_LENGTH": 3}, "pull": {}, "push": {}},
    "API": {"REMOTE_HOSTS": ["localhost"], "CREDENTIALS": {"shop": {"user": "jobs", "password": "pässword"}}},
    "ARCHIVE": {"DAYS": 180},
}


@pytest.fixture(autouse=True)
def _api(settings: Any, db: None) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.integration.api.urls"
    settings.DJANGO_JOBS = SETTINGS
    remote.forget()
    cache.clear()  # the requests of a minute are counted there, by keys of tokens that tests have in common
    work.ran.clear()
    work.offer()
    yield
    work.forget()
    remote.forget()


@pytest.fixture
def store(make_store: Callable[..., Store], settings: Any) -> Store:
    """One store of each kind in turn, in use, with the archiver's outbox."""
    settings.DJANGO_JOBS = SETTINGS
    store = make_store(archive=True)
    use_store(store)
    return store


class Api:
    """Speaks JSON to the API with one token."""

    def __init__(self, *scopes: str, jobs: tuple[str, ...] = (), basic: bool = False) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers: dict[str, str] = {}
        if scopes:
            _, secret = ApiToken.objects.issue(f"token {ApiToken.objects.count()}", scopes, jobs)
            self.headers["Authorization"] = f"Bearer {secret}"
            if basic:
                self.headers["Authorization"] = "Basic " + b64encode(f"anyone:{secret}".encode()).decode()

    def __call__(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **more: Any
    ) -> HttpResponse:
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        kind = more.pop("content_type", "application/json" if content else "")
        return self.client.generic(method, f"/jobs/{path}", content, kind, headers={**self.headers, **more})

    def get(self, path: str) -> HttpResponse:
        return self("GET", path)

    def put(self, path: str, body: Any = None) -> HttpResponse:
        return self("PUT", path, {} if body is None else body)

    def post(self, path: str, body: Any = None) -> HttpResponse:
        return self("POST", path, body)


ALL = ("enqueue", "read", "manage", "work", "targets")


@pytest.fixture
def api(store: Store) -> Api:
    """A client that may do everything."""
    return Api(*ALL)


@pytest.fixture
def types_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job types that were read are not read again because of the time: less than REFRESH passes in a whole test."""
    began, moments = type_cache._known.clock(), count()
    monkeypatch.setattr(type_cache._known, "clock", lambda: began + next(moments) / 1_000_000)


@pytest.fixture
def work_off(store: Store) -> Callable[..., int]:
    """Run what is queued, as a worker does."""

    def run(queue: str = "default") -> int:
        executor = Executor(close_connections=False, clock=store.now)
        count = 0
        for lane in (Lane.SHARED, Lane.ALONE):
            while claims := store.claim(queue, "worker", 10, lease=30_000, lane=lane).claims:
                for claim in claims:
                    executor.run(claim, store)
                    count += 1
        return count

    return run


@pytest.fixture
def kind(api: Api) -> str:
    """A remote type whose jobs are fetched."""
    made = api.post("v1/job-types", {"name": "php.resize", "queue": "pull", "attempts": 3, "timeout": 60})
    assert made.status_code == 201, made.content
    return "php.resize"


@pytest.fixture
def claim(api: Api, kind: str) -> Callable[..., list[dict[str, Any]]]:
    """Claim over HTTP."""

    def claim(**body: Any) -> list[dict[str, Any]]:
        answer = api.post("v1/queues/pull/claim", body)
        assert answer.status_code == 200, answer.content
        jobs: list[dict[str, Any]] = answer.json()["jobs"]
        return jobs

    return claim


# -- a real server, for requests at the same moment -------------------------------------

TOGETHER = 10


@pytest.fixture
def shared_store(make_redis_store: Callable[..., Store], settings: Any) -> Store:
    """The store that several threads share as servers do."""
    settings.DJANGO_JOBS = SETTINGS
    store = make_redis_store(archive=True)
    use_store(store)
    return store


@pytest.fixture
def busy_server(live_server: Any) -> Any:
    """A server that many threads call at the same moment."""
    if connection.vendor == "sqlite" and sys.version_info >= (3, 12):
        pytest.skip("Threads share the connection of a database in memory, and mix up its answers from Python 3.12 on.")
    return live_server


@pytest.fixture
def ask(transactional_db: None, shared_store: Store, busy_server: Any) -> Callable[..., tuple[int, Any]]:
    """Send one request; returns status and document."""
    _, secret = ApiToken.objects.issue("many", ALL)

    def ask(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{busy_server.url}/jobs/{path}",
            json.dumps(body if body is not None else {}).encode() if method not in {"GET", "DELETE"} else None,
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", **headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
                is_json = answer.headers["Content-Type"].startswith("application/json")
                return answer.status, json.loads(text) if is_json else text.decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return ask


def together(call: Callable[[int], tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Call it on TOGETHER threads, all let go at once."""
    barrier = Barrier(TOGETHER)

    def one(number: int) -> tuple[int, Any]:
        barrier.wait(60)
        return call(number)

    with ThreadPoolExecutor(TOGETHER) as threads:
        return list(threads.map(one, range(TOGETHER)))
