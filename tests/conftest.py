"""Fixtures of the whole suite: the clock, the stores, and a maker of jobs."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db.backends.signals import connection_created
from hypothesis import HealthCheck, settings

from django_jobs.core import registry
from django_jobs.core.values import Controls, Job, NewJob, Options
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.contract.store import Store, StoreOptions
from django_jobs.stores.redis import RedisStore
from django_jobs.stores.sqlite import SqliteStore
from django_jobs.worker.retry import cut_off
from tests.support.backends.cluster import running_cluster
from tests.support.backends.embedded import pytest_sessionfinish
from tests.support.backends.servers import running_redis
from tests.support.pace import SECONDS, Pace
from tests.support.side_by_side import (
    beside,
    is_timed,
    pytest_collection_modifyitems,
    pytest_configure_node,
    pytest_xdist_make_scheduler,
)

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_configure_node",
    "pytest_sessionfinish",
    "pytest_xdist_make_scheduler",
]

# A busy machine needs longer for an example now and then: a test that must be fast measures what it means itself.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


#: The stores that tests of the contract run on.  (In memory and in a file it is the same code.)
STORES = os.environ.get("STORES", "memory embedded redis").split()


#: Those of them that need a server.
SERVERS = ("redis", "cluster")


class Clock:
    """The time in ms, for `StoreOptions.clock`: stands still until told to go on."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> int:
        """Go on by `ms` and return the new time."""
        self.now += ms
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Seconds:
    """A clock in seconds, for whoever takes `monotonic` or the like: stands still until told to go on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Seconds:
    return Seconds()


@pytest.fixture(scope="session")
def _calibration() -> Iterator[Pace]:
    pace = Pace()
    yield pace
    pace.close()


@pytest.fixture
def pace(_calibration: Pace, request: pytest.FixtureRequest) -> Iterator[Pace]:
    """Judges durations: `pace.within(began, promise)`.

    A test that asks for it runs beside one other at most; one that is marked `timed` runs alone, and only such a test
    may judge promises of less than SECONDS."""
    _calibration.least = SECONDS if beside(request.node) else 0.0
    # What thousands of tests left in this process is not the program's: a collection of it takes a tenth of a second.
    gc.freeze()
    yield _calibration
    gc.unfreeze()


def pytest_collection_finish() -> None:
    """Ten thousand tests are half a million objects: a full collection would take a third of a second, in whatever test
    it comes."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    if "pace" in getattr(item, "fixturenames", ()) and not is_timed(item):
        item.add_marker(pytest.mark.timed(beside=1))


@pytest.fixture(autouse=True)
def _no_store_left_behind() -> Iterator[None]:
    """What a test put in use with `use_store`, or made by `get_store`, is not the next test's."""
    yield
    use_store(None)


@pytest.fixture(autouse=True)
def _no_outage_left_behind() -> Iterator[None]:
    """Who could not reach its store in one test must not keep the next test's from saying so."""
    yield
    cut_off.forget()


# -- databases in memory -----------------------------------------------------------

#: Django's connection, while it exists, and the driver's below it.
_Opened = list[tuple[weakref.ref[Any], Any]]


@pytest.fixture(scope="session", autouse=True)
def _opened_in_memory() -> Iterator[_Opened]:
    """Django closes no connection to a database in memory, and Python 3.13 warns of those that are collected open."""
    opened: _Opened = []

    def remember(connection: Any, **_: Any) -> None:
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            opened.append((weakref.ref(connection), connection.connection))

    connection_created.connect(remember, weak=False, dispatch_uid="tests.in_memory")
    yield opened
    connection_created.disconnect(dispatch_uid="tests.in_memory")
    for _, connection in opened:
        connection.close()


@pytest.fixture(autouse=True)
def _threads_leave_no_connection(_opened_in_memory: _Opened) -> Iterator[None]:
    """The connections of threads that ended in this test, the server's of an ASGI request say, are closed.

    Who opened one does not tell that it is left: a thread of the live server may be the first to use the connection
    that all of its threads and the test share."""
    yield
    for entry in [entry for entry in _opened_in_memory if entry[0]() is None]:
        _opened_in_memory.remove(entry)
        entry[1].close()


# -- stores --------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """URL of a Redis that tests may write to: REDIS_URL, else a server that lives as long as the run.

    `SERVER` names the program to start, whatever server runs already."""
    if (url := os.environ.get("REDIS_URL")) and not os.environ.get("SERVER"):
        yield url
        return
    with running_redis() as url:
        yield url


@pytest.fixture
def make_redis_store(redis_server: str, clock: Clock) -> Iterator[Callable[..., RedisStore]]:
    """Make a RedisStore in a namespace of this test; keyword arguments are fields of StoreOptions."""
    namespace = f"t{uuid.uuid4().hex[:12]}"
    made: list[RedisStore] = []

    def make(**options: Any) -> RedisStore:
        made.append(
            RedisStore.from_setting(
                redis_server, options=StoreOptions(**{"namespace": namespace, "clock": clock, **options})
            )
        )
        return made[-1]

    yield make
    for store in made:
        store.close()
    with redis.Redis.from_url(redis_server) as client:
        if keys := list(client.scan_iter(match=f"{{{namespace}*", count=1000)):
            client.delete(*keys)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[str]:
    """STORE setting of three nodes that live as long as the run."""
    with running_cluster() as setting:
        yield setting


@pytest.fixture
def make_cluster_store(redis_cluster: str, clock: Clock) -> Iterator[Callable[..., RedisStore]]:
    """Make a RedisStore on the cluster, in a namespace of this test; keyword arguments are fields of StoreOptions."""
    namespace = f"t{uuid.uuid4().hex[:12]}"
    made: list[RedisStore] = []

    def make(**given: Any) -> RedisStore:
        options = StoreOptions(**{"namespace": namespace, "clock": clock, **given})
        made.append(RedisStore.from_setting(redis_cluster, options=options))
        return made[-1]

    yield make
    if made:
        # Whoever looks at all keys must not become slower with each test.
        made[-1].transport.client.flushall(target_nodes="primaries")
    for store in made:
        store.close()


@pytest.fixture
def cluster_store(make_cluster_store: Callable[..., RedisStore]) -> RedisStore:
    return make_cluster_store()


@pytest.fixture
def make_sqlite_store(clock: Clock) -> Iterator[Callable[..., SqliteStore]]:
    """Make a SqliteStore; the first argument is its path or ":memory:", keyword arguments are of StoreOptions."""
    made: list[SqliteStore] = []

    def make(path: str | Path = ":memory:", **options: Any) -> SqliteStore:
        made.append(SqliteStore(path, StoreOptions(**{"clock": clock, **options})))
        return made[-1]

    yield make
    for store in made:
        store.close()
    # A thread that was listening for ends may have opened a connection again before it saw that nobody waits.
    for thread in threading.enumerate():
        if thread.name.startswith("ends of "):
            thread.join(5)
    for store in made:
        store.close()


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.redis] * (name in SERVERS)) for name in STORES])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Store]:
    """Make a store of each kind in turn, again on the same data; keyword arguments are fields of StoreOptions.

    (Each "memory" store has data of its own.)"""
    if request.param in SERVERS:
        make: Callable[..., Store] = request.getfixturevalue(f"make_{request.param}_store")
        return make
    make_sqlite = request.getfixturevalue("make_sqlite_store")
    path = ":memory:" if request.param == "memory" else tmp_path / "jobs.sqlite3"
    return lambda **options: make_sqlite(path, **options)


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    """One store of each kind in turn: for tests of the contract."""
    return make_store()


@pytest.fixture
def memory_store(make_sqlite_store: Callable[..., SqliteStore]) -> SqliteStore:
    return make_sqlite_store()


@pytest.fixture
def embedded_store(make_sqlite_store: Callable[..., SqliteStore], tmp_path: Path) -> SqliteStore:
    return make_sqlite_store(tmp_path / "jobs.sqlite3")


@pytest.fixture
def sqlite_store(memory_store: SqliteStore) -> SqliteStore:
    """The SqliteStore to use where the file does not matter."""
    return memory_store


@pytest.fixture
def redis_store(make_redis_store: Callable[..., RedisStore]) -> RedisStore:
    return make_redis_store()


# -- jobs ----------------------------------------------------------------------


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job is registered but what the test registers: other test modules' jobs stay when they are imported."""
    monkeypatch.setattr(registry, "_by_name", {})
    monkeypatch.setattr(registry, "_aliases", {})


_CONTROLS = {field.name for field in fields(Controls)}
_OPTIONS = {field.name for field in fields(Options)}


@pytest.fixture
def make_job(clock: Clock) -> Callable[..., NewJob]:
    """Make a NewJob: keyword arguments are fields of Job, Controls, Options and NewJob; none is needed."""
    numbers = itertools.count(1)

    def make(id: str | None = None, **given: Any) -> NewJob:
        controls = Controls(**{name: given.pop(name) for name in _CONTROLS & given.keys()})
        options = Options(**{name: given.pop(name) for name in _OPTIONS & given.keys()})
        job = Job(
            id or f"job-{next(numbers)}",
            given.pop("queue", "default"),
            given.pop("name", "tests.job"),
            given.pop("args", b"[[],{}]"),
            given.pop("enqueued_at", clock.now),
            options,
            controls,
            given.pop("meta", None),
        )
        return NewJob(job.id, encode(job), controls, **given)

    return make
