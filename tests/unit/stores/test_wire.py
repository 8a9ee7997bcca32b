"""Calls that go over a connection of redis-py without redis-py: the same replies and the same errors."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions as driver

from django_jobs.stores.redis.connection import wire as module
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.redis.connection.wire import FIRST_SKIPPED, MOST_SKIPPED, Held, Looking, Wire

PING = b"*1\r\n$4\r\nPING\r\n"

Ends = tuple[redis.Connection, socket.socket]


def connected(connection: redis.Connection | None = None, timeout: float | None = 5.0) -> Ends:
    """Return a connection of redis-py, as it is after its handshake, and the server's end of it."""
    connection = connection or redis.Connection("server", 6379, protocol=2, socket_timeout=timeout)
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout)
    connection._sock = ours
    connection._parser.on_connect(connection)
    return connection, theirs


@pytest.fixture
def ends() -> Iterator[Ends]:
    connection, server = connected()
    yield connection, server
    connection.disconnect()
    server.close()


def packed(value: Any) -> bytes:
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(packed, value))


REPLIES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40), lambda some: st.lists(some, max_size=5)
)


@given(replies=st.lists(REPLIES, min_size=1, max_size=4), data=st.data())
def test_replies_are_read_whole_however_they_come(replies: list[Any], data: st.DataObject) -> None:
    text = b"".join(map(packed, replies))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    connection, server = connected()
    wire = Wire(connection, Looking())
    try:
        wire.send(PING)
        assert server.recv(100) == PING
        ours = wire._sock

        class Slow:
            """Gets one piece with each read."""

            def recv_into(self, buffer: bytearray) -> int:
                server.sendall(pieces.pop(0))
                return int(ours.recv_into(buffer))

        wire._sock = Slow()
        assert [wire.receive() for _ in replies] == replies
    finally:
        connection.disconnect()
        server.close()


@pytest.mark.parametrize(
    "said",
    [
        "ERR something",
        "ERR max number of clients reached",
        "ERR invalid password",
        "NOSCRIPT No matching script. Please use EVAL.",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "NOPERM this user has no permissions",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script.",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    ],
)
def test_an_error_of_the_server_is_the_same_as_from_redis_py(ends: Ends, said: str) -> None:
    connection, server = ends
    line = f"-{said}\r\n".encode()
    server.sendall(line)
    with pytest.raises(driver.RedisError) as theirs:
        connection.read_response(disconnect_on_error=False)
    wire = Wire(connection, Looking())
    wire.send(PING)
    server.sendall(line)
    with pytest.raises(driver.RedisError) as ours:
        wire.receive()
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize("rest", [b"", b"$5\r\nhal"])
def test_a_connection_that_ends_before_its_reply_is_an_error_of_the_connection(
    ends: Ends, rest: bytes, soon: bool
) -> None:
    connection, server = ends
    wire = Wire(connection, Looking())
    wire.send(PING)
    server.sendall(rest)
    server.shutdown(socket.SHUT_RDWR)
    with pytest.raises(driver.ConnectionError, match="closed by server"):
        wire.receive(soon=soon)


def test_a_server_that_is_silent_for_the_timeout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, server = connected(timeout=0.01)
    wire = Wire(connection, Looking())
    wire.send(PING)
    with pytest.raises(driver.TimeoutError, match="Timeout reading from server:6379"):
        wire.receive(soon=True)
    with pytest.raises(driver.TimeoutError, match="Timeout writing"):
        wire.send(bytes(10_000_000))
    server.close()
    with pytest.raises(driver.ConnectionError, match=r"Error \d+ while writing to socket. Broken pipe"):
        wire.send(PING)
    connection.disconnect()


def test_what_is_not_a_reply_is_refused(ends: Ends) -> None:
    connection, server = ends
    wire = Wire(connection, Looking())
    wire.send(PING)
    server.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(driver.InvalidResponse):
        wire.receive()


def test_half_a_reply_is_not_read_after_connecting_again(ends: Ends) -> None:
    connection, server = ends
    wire = Wire(connection, Looking())
    wire.send(PING)
    server.sendall(b"$5\r\nhal")
    server.shutdown(socket.SHUT_RDWR)
    with pytest.raises(driver.ConnectionError):
        wire.receive()
    connection.disconnect()
    _, other = connected(connection)
    wire.send(PING)
    other.sendall(b"+new\r\n")
    assert wire.receive() == b"new"
    other.close()


def test_a_connection_with_health_checks_is_left_to_redis_py(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, server = connected(
        redis.Connection("server", 6379, protocol=2, socket_timeout=5.0, health_check_interval=60)
    )
    connection.next_health_check = float("inf")
    wire = Wire(connection, Looking())
    monkeypatch.setattr(Wire, "write", None)
    wire.send(PING)
    server.sendall(b"+PONG\r\n")
    assert wire.receive(soon=True) == b"PONG"
    connection.disconnect()
    server.close()


# -- looking ----------------------------------------------------------------------------


class Polls:
    """Says that the reply is there at the look of that number; None: never."""

    def __init__(self, there: int | None = None) -> None:
        self.there, self.looks = there, 0

    def __call__(self, timeout: int) -> bool:
        assert timeout == 0
        self.looks += 1
        return self.there == self.looks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes a tenth of the longest time."""
    now = iter(range(10**9))
    monkeypatch.setattr(module, "perf_counter", lambda: next(now) * module.LONGEST_LOOK / 10)


@pytest.mark.usefixtures("clock")
def test_a_reply_that_comes_at_once_is_looked_for() -> None:
    looking, polls = Looking(), Polls(there=3)
    looking.look(polls)
    assert polls.looks == 3


@pytest.mark.usefixtures("clock")
def test_a_server_that_answers_later_is_looked_at_more_and_more_seldom() -> None:
    looking, skipped = Looking(), []
    for _ in range(12):
        polls = Polls()
        looking.look(polls)
        assert 9 <= polls.looks <= 12  # LONGEST_LOOK
        calls = 0
        while not (polls := Polls(there=1)).looks and looking._skip:
            looking.look(polls)
            calls += 1
        skipped.append(calls)
    doubled = [FIRST_SKIPPED * 2**n for n in range(12)]
    assert skipped == [min(calls, MOST_SKIPPED) for calls in doubled]
    assert skipped[-1] == MOST_SKIPPED
    looking.look(Polls(there=1))  # it answers at once again
    looking.look(Polls())
    assert looking._skip == FIRST_SKIPPED


@pytest.mark.usefixtures("clock")
def test_nobody_looks_while_others_wait(ends: Ends) -> None:
    looking, polls = Looking(), Polls(there=3)
    connection, _ = ends
    looking.waiting |= {Wire(connection, looking), Wire(connection, looking)}
    looking.look(polls)
    assert polls.looks == 0
    looking.waiting.pop()
    looking.look(polls)
    assert polls.looks == 3


@pytest.mark.usefixtures("clock")
def test_a_look_ends_when_another_thread_begins_to_wait(ends: Ends) -> None:
    looking, connection = Looking(), ends[0]
    looking.waiting.add(Wire(connection, looking))
    looks = 0

    def poll(timeout: int) -> bool:
        nonlocal looks
        looks += 1
        looking.waiting.add(Wire(connection, looking))
        return False

    looking.look(poll)
    assert looks == 1
    assert looking._skip == 0  # that says nothing about the server


def test_a_call_waits_only_until_its_reply_or_its_error(ends: Ends) -> None:
    connection, server = ends
    looking = Looking()
    wire = Wire(connection, looking)
    for text in (b"+OK\r\n", b"-ERR no\r\n"):
        wire.send(PING)
        server.sendall(text)
        with suppress(driver.ResponseError):
            wire.receive(soon=True)
        assert not looking.waiting


def test_under_gevent_there_is_nothing_to_look_at(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    class CooperativePoll:
        def register(self, *args: object) -> None: ...

        def poll(self, timeout: float) -> list[int]:
            raise AssertionError("this would let other greenlets run")

    monkeypatch.setattr(select, "poll", CooperativePoll)
    connection, server = ends
    wire = Wire(connection, Looking())
    wire.send(PING)
    server.sendall(b"+PONG\r\n")
    assert wire.receive(soon=True) == b"PONG"


def test_a_copy_of_the_process_does_not_count_the_waiting_threads_of_its_parent(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool:
        def get_connection(self) -> redis.Connection:
            return redis.Connection("server", 6379)

        def release(self, connection: redis.Connection) -> None: ...

    pool: Any = Pool()
    transport = Transport(pool, "server")
    in_parent = transport._held()
    transport._looking.waiting |= {in_parent.wire, Wire(ends[0], transport._looking)}
    monkeypatch.setattr(os, "getpid", lambda: in_parent.pid + 1)
    assert transport._held() is not in_parent
    assert not transport._looking.waiting


def test_when_the_interpreter_ends_a_connection_is_left_to_it(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules may be gone by then."""

    class Pool:
        released = 0

        def release(self, connection: redis.Connection) -> None:
            self.released += 1

    pool: Any = Pool()
    held = Held(pool, ends[0], Looking())
    with monkeypatch.context() as late:
        late.setattr(module, "os", None)
        held.__del__(lambda: True)
    assert pool.released == 0
    held.__del__(lambda: False)
    assert pool.released == 1
