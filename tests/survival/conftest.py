"""Servers and stores of the survival tests: never the developer's, always our own processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer
from tests.support.pools import Site


class Clock:
    """Virtual ms for stores."""

    def __init__(self) -> None:
        self.now = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture(scope="session")
def quiet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that nobody breaks, for tests at script level; emptied before each."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), append_only=False).start()
    yield server
    server.close()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for this test alone, with an append-only file: it may be killed and filled."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.close()


@pytest.fixture
def site(server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """Workers and producers on that server."""
    site = Site(tmp_path, server.url)
    yield site
    site.close()


@pytest.fixture
def virtual() -> Clock:
    """The clock of `law_store`."""
    return Clock()


@pytest.fixture
def law_store(quiet_server: RedisServer, virtual: Clock) -> Iterator[Store]:
    """A store on the quiet server, emptied, with a virtual clock and a small history."""
    with quiet_server.client() as client:
        client.flushall()
    options = StoreOptions(clock=virtual, history=20, dead=20, archive=True)
    store = Store.from_setting(quiet_server.url, options=options)
    yield store
    store.close()
