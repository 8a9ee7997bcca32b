"""What users read when Redis is not as it should be: which value, and what to do."""

from __future__ import annotations

import gc
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis

from django_jobs.core.values import State
from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.errors import is_passing, translate
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import free_port
from tests.support.backends.servers import running_redis
from tests.support.pace import Pace


def store_at(setting: str) -> Store:
    return Store.from_setting(setting, options=StoreOptions(namespace="errors"))


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Somebody who listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.accepts("K28")
def test_an_absent_redis_is_said_at_once(make_job: Any, pace: Pace) -> None:
    port = free_port()
    store, started = store_at(f"redis://:s3cret@127.0.0.1:{port}/0"), time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}.*cannot be reached.*with the same job_id") as told:
        store.enqueue("default", [make_job()])
    pace.within(started, 5)
    assert "s3cret" not in str(told.value)


@pytest.mark.redis
def test_a_redis_that_does_not_answer_is_given_up_within_five_seconds(
    black_hole: str, make_job: Any, pace: Pace
) -> None:
    store, started = store_at(black_hole), time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.enqueue("default", [make_job()])
    pace.within(started, 5)
    store.close()


@pytest.fixture
def locked_server() -> Iterator[str]:
    with running_redis() as url:
        client = redis.Redis.from_url(url)
        client.config_set("requirepass", "right")
        yield url
        client.close()


@pytest.mark.redis
@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_a_wrong_password_names_the_setting(locked_server: str, password: str, make_job: Any) -> None:
    store = store_at(locked_server.replace("unix://", f"unix://{password}"))
    with pytest.raises(StoreMisconfigured, match=r"DJANGO_JOBS\['STORE'\]") as told:
        store.enqueue("default", [make_job()])
    assert "wrong@" not in str(told.value)
    store.close()


@pytest.mark.redis
def test_a_key_of_another_type_is_named_as_damage_and_nothing_is_half_written(
    redis_store: Store, make_job: Any
) -> None:
    redis_store.transport.command("SET", redis_store.keys.of("default")["jobs"], "rubbish")
    with pytest.raises(StoreCorrupt, match="doctor"):
        redis_store.enqueue("default", [make_job("a")])
    assert redis_store.backlog(["default"]) == {"default": 0}
    assert redis_store.reconcile("default")["wrong_type"] == 1
    redis_store.enqueue("default", [make_job("a")])
    info = redis_store.get("default", "a")
    assert info is not None
    assert info.state is State.QUEUED


def _is_refused(store: Store, job: Any) -> None:
    with suppress(StoreCorrupt):
        store.enqueue("default", [job])


def _is_refused_ahead(store: Store, job: Any) -> None:
    with suppress(StoreCorrupt):
        store.enqueue_ahead("default", [job])()


def _is_refused_among_others(store: Store, job: Any) -> None:
    assert isinstance(store.renew(["default"], ["w"], 1000)["default"], StoreCorrupt)


@pytest.mark.redis
@pytest.mark.parametrize("call", [_is_refused, _is_refused_ahead, _is_refused_among_others])
def test_an_error_keeps_no_connection(redis_store: Store, make_job: Any, call: Callable[[Store, Any], None]) -> None:
    """When its thread ends, it returns to the pool at once, not with the next run of the garbage collector."""
    for name in ("jobs", "claims", "leases"):
        redis_store.transport.command("SET", redis_store.keys.of("default")[name], "rubbish")
    held: list[weakref.ref[Any]] = []

    def in_a_thread() -> None:
        assert isinstance(redis_store.transport, Transport)
        call(redis_store, make_job("a"))
        held.append(weakref.ref(redis_store.transport._connection()))

    gc.collect()
    gc.disable()
    try:
        thread = Thread(target=in_a_thread)
        thread.start()
        thread.join(60)
        assert [ref() for ref in held] == [None]
    finally:
        gc.enable()


# -- what a server says from inside a script ----------------------------------------------


@pytest.fixture
def harmed() -> Iterator[tuple[Store, redis.Redis]]:
    """A store on a server of its own, and a way to harm it."""
    with running_redis() as url:
        store, client = store_at(url), redis.Redis.from_url(url)
        yield store, client
        store.close()
        client.close()


@pytest.mark.redis
def test_the_connection_to_a_primary_that_was_demoted_is_left(harmed: tuple[Store, redis.Redis], make_job: Any) -> None:
    """A client that kept it would be refused for as long as it lives, though the name leads to another server."""
    store, client = harmed
    store.enqueue("default", [make_job()])
    before = store.transport._connection().raw
    assert isinstance(before, redis.connection.AbstractConnection)
    client.replicaof("127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="You can't write against a read only replica"):
        store.enqueue("default", [make_job()])
    assert store.transport._connection().broken
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert store.claim("default", "w", 1, lease=30_000).claims


@pytest.mark.redis
@pytest.mark.parametrize("harm", ["replicas", "memory"])
def test_refusals_inside_a_script_are_told_apart_on_every_version(
    harmed: tuple[Store, redis.Redis], make_job: Any, harm: str
) -> None:
    store, client = harmed
    store.enqueue("default", [make_job()])
    if harm == "replicas":
        client.config_set("min-replicas-to-write", 1)
    else:
        client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable if harm == "replicas" else StoreFull) as told:
        store.enqueue("default", [make_job()])
    assert "user_script: 1" not in str(told.value)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to.", StoreUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", StoreCorrupt),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "{0}",
        "{0} script: a8e045687019c1230c01d4717e0579b12b1a1b50, on @user_script:1.",
        "Error running script (call to f_a8e0456870): @user_script:1: @user_script: 1: -{0}",
        "@user_script: 1: -{0}",
    ],
)
def test_what_a_server_says_is_recognised_in_every_form(word: str, kind: type[Exception], form: str) -> None:
    error = redis.exceptions.ResponseError(form.format(word))
    assert is_passing(error) is (kind is StoreUnavailable)
    told = translate(error, "there")
    assert type(told) is kind
    assert "Check that the server runs" not in str(told), "it has answered"


# -- who waits, and for how long ---------------------------------------------------------------


@pytest.mark.timed
def test_a_refused_connection_is_told_at_once_to_who_enqueues(make_job: Any, pace: Pace) -> None:
    """1.9 s of further tries help a worker over a restart; a web request has no use for them."""
    port = free_port()
    for setting in (f"redis://127.0.0.1:{port}/0", "unix:///nowhere/redis.sock"):
        store, began = store_at(setting), time.monotonic()
        with pytest.raises(StoreUnavailable, match="safe to enqueue it again with the same job_id"):
            store.enqueue("default", [make_job()])
        pace.within(began, 0.5)
        store.close()


@pytest.mark.redis
def test_an_idle_worker_waits_longer_than_the_time_that_an_answer_may_take(locked_server: str) -> None:
    address = locked_server.replace("unix://", "unix://:right@")
    store, began = store_at(f"{address}&socket_timeout=0.5"), time.monotonic()
    assert store.wait_for_work(["default"], 1.2) is None
    assert time.monotonic() - began >= 1.2
    store.close()


@pytest.mark.redis
def test_a_closed_store_leaves_no_socket_though_an_error_of_it_is_kept(redis_server: str) -> None:
    """Its traceback refers to the connection.  A socket that only the garbage collector closes is a ResourceWarning."""
    store, before = store_at(redis_server), sockets()
    store.transport.command("SET", key := store.keys.fleet("queues"), "not a set")
    with pytest.raises(StoreError) as kept:
        store.transport.command("SADD", key, "default")
    store.transport.command("DEL", key)
    store.close()
    assert sockets() == before
    assert kept.value is not None


def sockets() -> int:
    """Return how many sockets this process has open."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("This system does not tell which files a process has open.")
    found = 0
    for file in folder.iterdir():
        with suppress(OSError):  # that of the loop itself
            found += os.readlink(file).startswith("socket:")
    return found


@pytest.mark.redis
@pytest.mark.parametrize("use", range(5))
def test_a_store_that_is_closed_while_another_thread_connects_serves_it_all_the_same(
    redis_server: str, use: int
) -> None:
    """Taking the socket away would end the call with whatever redis-py misses then: an AttributeError, a TypeError."""
    store, uses = store_at(redis_server), 0
    assert isinstance(store.transport, Transport)
    pool = store.transport.pool
    parser: Any = type(pool.make_connection()._parser)  # type: ignore[attr-defined]

    class Watched(parser):  # type: ignore[misc]
        @property
        def _sock(self) -> Any:
            nonlocal uses
            uses += 1
            if uses - 1 == use:  # between two lines of redis-py
                store.close()
            return self.sock

        @_sock.setter
        def _sock(self, sock: Any) -> None:
            self.sock = sock

    pool.connection_kwargs["parser_class"] = Watched
    assert store.get("default", "job") is None
    assert uses
    store.close()
