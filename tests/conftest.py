"""Fixtures of the whole suite: the clock, the stores, and a maker of jobs."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
import redis
from django.db.backends.signals import connection_created
from hypothesis import HealthCheck, settings

from django_jobs.core import registry
from django_jobs.core.values import Controls, Job, NewJob, Options
from django_jobs.serialization.record import encode
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from django_jobs.worker.retry import cut_off
from tests.support.backends.cluster import running_cluster
from tests.support.backends.embedded import pytest_sessionfinish
from tests.support.backends.servers import running_redis
from tests.support.emptied import _emptied
from tests.support.open_sockets import pytest_runtest_makereport
from tests.support.pace import SECONDS, Pace
from tests.support.second_chance import pytest_configure
from tests.support.side_by_side import (
    beside,
    is_timed,
    pytest_collection_modifyitems,
    pytest_configure_node,
    pytest_xdist_make_scheduler,
)

__all__ = [
    "_emptied",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_xdist_make_scheduler",
]

# A busy machine needs longer for an example now and then: a test that must be fast measures what it means itself.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


#: The kinds of server that tests of the store run on: "redis" is one server, "cluster" three nodes.
STORES = os.environ.get("STORES", "redis").split()


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


def pytest_sessionstart() -> None:
    """Whoever starts the tests may ignore signals, as nohup and a shell's `&` do, and so would all that tests start."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Ten thousand tests are half a million objects: a full collection would take a third of a second, in whatever test
    it comes."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    names = getattr(item, "fixturenames", ())
    if not {"redis_server", "redis_cluster", "make_store"}.isdisjoint(names):
        item.add_marker(pytest.mark.redis)
    if "pace" in names and not is_timed(item):
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
    with running_redis() as url, redis.Redis.from_url(url) as client:
        before = client.config_get()
        yield url
        changed = {name for name, value in client.config_get().items() if before[name] != value}
        assert not changed, f"a test left settings of the shared server changed: {changed} (use `configured`)"


@pytest.fixture
def make_redis_store(redis_server: str, clock: Clock) -> Iterator[Callable[..., Store]]:
    """Make a Store in a namespace of this test; keyword arguments are fields of StoreOptions."""
    namespace = f"t{uuid.uuid4().hex[:12]}"
    made: list[Store] = []

    def make(**options: Any) -> Store:
        made.append(
            Store.from_setting(
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
def make_cluster_store(redis_cluster: str, clock: Clock) -> Iterator[Callable[..., Store]]:
    """Make a Store on the cluster, in a namespace of this test; keyword arguments are fields of StoreOptions."""
    namespace = f"t{uuid.uuid4().hex[:12]}"
    made: list[Store] = []

    def make(**given: Any) -> Store:
        options = StoreOptions(**{"namespace": namespace, "clock": clock, **given})
        made.append(Store.from_setting(redis_cluster, options=options))
        return made[-1]

    yield make
    if made:
        # Whoever looks at all keys must not become slower with each test.
        made[-1].transport.client.flushall(target_nodes="primaries")
    for store in made:
        store.close()


@pytest.fixture
def cluster_store(make_cluster_store: Callable[..., Store]) -> Store:
    return make_cluster_store()


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest) -> Callable[..., Store]:
    """Make a store on each kind of server in turn, again on the same data; keyword arguments are fields of
    StoreOptions."""
    make: Callable[..., Store] = request.getfixturevalue(f"make_{request.param}_store")
    return make


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    """One store on each kind of server in turn: for tests of what a store does."""
    return make_store()


@pytest.fixture
def redis_store(make_redis_store: Callable[..., Store]) -> Store:
    """The store to use where the kind of server does not matter."""
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
