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

from django_jobs.stores.redis.connection import thread_connection as module
from django_jobs.stores.redis.connection.thread_connection import (
    FIRST_SKIPPED,
    MOST_SKIPPED,
    SpinWait,
    ThreadConnection,
)
from django_jobs.stores.redis.connection.transport import Transport

PING, TIME = b"*1\r\n$4\r\nPING\r\n", b"*1\r\n$4\r\nTIME\r\n"

Ends = tuple[redis.Connection, socket.socket]


def connected(connection: redis.Connection | None = None, timeout: float | None = 5.0) -> Ends:
    """Return a connection of redis-py, as it is after its handshake, and the server's end of it."""
    connection = connection or redis.Connection("server", 6379, protocol=2, socket_timeout=timeout)
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout)
    connection._sock = ours
    connection._parser.on_connect(connection)
    return connection, theirs


class Pool:
    """Gives connections to a server that is not there, and counts those that come back."""

    def __init__(self) -> None:
        self.released = 0

    def get_connection(self) -> redis.Connection:
        return redis.Connection("server", 6379)

    def release(self, connection: redis.Connection) -> None:
        self.released += 1


def thread_connection(raw: redis.Connection, spin: SpinWait | None = None) -> ThreadConnection:
    pool: Any = Pool()
    return ThreadConnection(pool, raw, spin or SpinWait())


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
    opened = thread_connection(connection)
    try:
        opened.send(PING)
        assert server.recv(100) == PING
        ours = opened._sock

        class Slow:
            """Gets one piece with each read."""

            def recv_into(self, buffer: bytearray) -> int:
                server.sendall(pieces.pop(0))
                return int(ours.recv_into(buffer))

        opened._sock = Slow()
        assert [opened.receive() for _ in replies] == replies
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
    opened = thread_connection(connection)
    opened.send(PING)
    server.sendall(line)
    with pytest.raises(driver.RedisError) as ours:
        opened.receive()
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize("rest", [b"", b"$5\r\nhal"])
def test_a_connection_that_ends_before_its_reply_is_an_error_of_the_connection(
    ends: Ends, rest: bytes, soon: bool
) -> None:
    connection, server = ends
    opened = thread_connection(connection)
    opened.send(PING)
    server.sendall(rest)
    server.shutdown(socket.SHUT_RDWR)
    with pytest.raises(driver.ConnectionError, match="closed by server"):
        opened.receive(soon=soon)


def test_a_server_that_is_silent_for_the_timeout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, server = connected(timeout=0.01)
    opened = thread_connection(connection)
    opened.send(PING)
    with pytest.raises(driver.TimeoutError, match="Timeout reading from server:6379"):
        opened.receive(soon=True)
    with pytest.raises(driver.TimeoutError, match="Timeout writing"):
        opened.send(bytes(10_000_000))
    server.close()
    with pytest.raises(driver.ConnectionError, match=r"Error \d+ while writing to socket. Broken pipe"):
        opened.send(PING)
    connection.disconnect()


def test_what_is_not_a_reply_is_refused(ends: Ends) -> None:
    connection, server = ends
    opened = thread_connection(connection)
    opened.send(PING)
    server.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(driver.InvalidResponse):
        opened.receive()


def test_half_a_reply_is_not_read_after_connecting_again(ends: Ends) -> None:
    connection, server = ends
    opened = thread_connection(connection)
    opened.send(PING)
    server.sendall(b"$5\r\nhal")
    server.shutdown(socket.SHUT_RDWR)
    with pytest.raises(driver.ConnectionError):
        opened.receive()
    connection.disconnect()
    _, other = connected(connection)
    opened.send(PING)
    other.sendall(b"+new\r\n")
    assert opened.receive() == b"new"
    other.close()


@pytest.fixture
def checked() -> Iterator[Ends]:
    """A connection whose address says `health_check_interval`."""
    connection, server = connected(
        redis.Connection("server", 6379, protocol=2, socket_timeout=5.0, health_check_interval=60)
    )
    yield connection, server
    connection.disconnect()
    server.close()


def test_a_connection_with_health_checks_is_tested_when_the_interval_is_over(checked: Ends) -> None:
    connection, server = checked
    opened = thread_connection(connection)
    connection.next_health_check = 0
    for reply in (b"first", b"second"):
        server.sendall(b"+%b\r\n" % reply)
        assert opened.call(TIME) == reply
        connection.next_health_check = float("inf")
    connection.next_health_check = 0
    server.sendall(b"+PONG\r\n")
    opened.send(TIME)
    server.sendall(b"+third\r\n")
    assert opened.receive() == b"third"
    assert server.recv(1000) == TIME * 2 + PING + TIME


def test_a_call_is_not_sent_if_the_health_check_before_it_fails(checked: Ends) -> None:
    connection, server = checked
    opened = thread_connection(connection)
    server.sendall(b"+OK\r\n")
    assert opened.call(TIME) == b"OK"
    connection.next_health_check = 0
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(driver.ConnectionError):
        opened.call(TIME)
    assert server.recv(1000) == TIME + PING
    assert not opened.is_ready


# -- spinning ---------------------------------------------------------------------------


class Polls:
    """Says that the reply is there when it is asked for the nth time; None: never."""

    def __init__(self, there: int | None = None) -> None:
        self.there, self.polled = there, 0

    def __call__(self, timeout: int) -> bool:
        assert timeout == 0
        self.polled += 1
        return self.there == self.polled


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll takes a tenth of the longest time."""
    now = iter(range(10**9))
    monkeypatch.setattr(module, "perf_counter", lambda: next(now) * module.LONGEST_SPIN / 10)


@pytest.mark.usefixtures("clock")
def test_a_reply_that_comes_at_once_is_polled_for() -> None:
    spin, polls = SpinWait(), Polls(there=3)
    spin.spin(polls)
    assert polls.polled == 3


@pytest.mark.usefixtures("clock")
def test_a_server_that_answers_later_is_polled_less_and_less_often() -> None:
    spin, skipped = SpinWait(), []
    for _ in range(12):
        polls = Polls()
        spin.spin(polls)
        assert 9 <= polls.polled <= 12  # LONGEST_SPIN
        calls = 0
        while not (polls := Polls(there=1)).polled and spin._skip:
            spin.spin(polls)
            calls += 1
        skipped.append(calls)
    doubled = [FIRST_SKIPPED * 2**n for n in range(12)]
    assert skipped == [min(calls, MOST_SKIPPED) for calls in doubled]
    assert skipped[-1] == MOST_SKIPPED
    spin.spin(Polls(there=1))  # it answers at once again
    spin.spin(Polls())
    assert spin._skip == FIRST_SKIPPED


@pytest.mark.usefixtures("clock")
def test_no_call_spins_while_others_wait(ends: Ends) -> None:
    spin, polls = SpinWait(), Polls(there=3)
    connection, _ = ends
    spin.waiting |= {thread_connection(connection, spin), thread_connection(connection, spin)}
    spin.spin(polls)
    assert polls.polled == 0
    spin.waiting.pop()
    spin.spin(polls)
    assert polls.polled == 3


@pytest.mark.usefixtures("clock")
def test_a_spin_ends_when_another_thread_begins_to_wait(ends: Ends) -> None:
    spin, connection = SpinWait(), ends[0]
    spin.waiting.add(thread_connection(connection, spin))
    polled = 0

    def poll(timeout: int) -> bool:
        nonlocal polled
        polled += 1
        spin.waiting.add(thread_connection(connection, spin))
        return False

    spin.spin(poll)
    assert polled == 1
    assert spin._skip == 0  # that says nothing about the server


def test_a_call_waits_only_until_its_reply_or_its_error(ends: Ends) -> None:
    connection, server = ends
    spin = SpinWait()
    opened = thread_connection(connection, spin)
    for text in (b"+OK\r\n", b"-ERR no\r\n"):
        opened.send(PING)
        server.sendall(text)
        with suppress(driver.ResponseError):
            opened.receive(soon=True)
        assert not spin.waiting


def test_under_gevent_no_call_spins(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    class CooperativePoll:
        def register(self, *args: object) -> None: ...

        def poll(self, timeout: float) -> list[int]:
            raise AssertionError("this would let other greenlets run")

    monkeypatch.setattr(select, "poll", CooperativePoll)
    connection, server = ends
    opened = thread_connection(connection)
    opened.send(PING)
    server.sendall(b"+PONG\r\n")
    assert opened.receive(soon=True) == b"PONG"


def test_a_copy_of_the_process_does_not_count_the_waiting_threads_of_its_parent(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = Pool()
    transport = Transport(pool, "server")
    in_parent = transport._connection()
    transport._spin.waiting |= {in_parent, thread_connection(ends[0], transport._spin)}
    monkeypatch.setattr(os, "getpid", lambda: in_parent.pid + 1)
    assert transport._connection() is not in_parent
    assert not transport._spin.waiting


def test_when_the_interpreter_ends_a_connection_is_left_to_it(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules may be gone by then."""

    pool: Any = Pool()
    taken = ThreadConnection(pool, ends[0], SpinWait())
    with monkeypatch.context() as late:
        late.setattr(module, "os", None)
        taken.__del__(lambda: True)
    assert pool.released == 0
    taken.__del__(lambda: False)
    assert pool.released == 1
