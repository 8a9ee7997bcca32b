"""The connections that report changed keys: reports among replies, in pieces, and what is neither."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import redis

from django_jobs.stores.redis.connection.tracking import TrackingConnection, TrackingRefused

HELLO = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nmodules\r\n*1\r\n%1\r\n$4\r\nname\r\n+x\r\n"


class Raw(redis.Connection):
    """redis-py's connection to a server at the other end of a pair of sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.server = socket.socketpair()

    def connect(self) -> None:
        self._sock = self.ours

    def disconnect(self, *args: object, **more: object) -> None:
        self.ours.close()


@pytest.fixture
def raw() -> Iterator[Raw]:
    raw = Raw()
    yield raw
    raw.ours.close()
    raw.server.close()


def invalidated(*keys: bytes) -> bytes:
    return b">2\r\n$10\r\ninvalidate\r\n*%d\r\n" % len(keys) + b"".join(b"$%d\r\n%b\r\n" % (len(k), k) for k in keys)


CHANGE = invalidated(b"{jobs:a}:wake", b"{jobs:b}:wake")
FLUSHED = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
OTHER = b">3\r\n+message\r\n+channel\r\n+text\r\n"
ALL = HELLO + b"+OK\r\n" + CHANGE + b":0\r\n" + OTHER + b"-WRONGTYPE no list\r\n" + FLUSHED + b":7\r\n"


def test_reports_and_replies_are_told_apart_wherever_they_are_cut() -> None:
    for at in range(1, len(ALL)):
        raw = Raw()
        line = TrackingConnection(raw)
        line.read_lengths(["empty", "of another type", "full"])
        found = []
        for piece in (ALL[:at], ALL[at:]):
            raw.server.sendall(piece)
            found += list(line.messages())
        raw.ours.close()
        raw.server.close()
        assert found == [
            ("{jobs:a}:wake", None),
            ("{jobs:b}:wake", None),
            ("empty", 0),
            ("of another type", -1),
            (None, None),
            ("full", 7),
        ], at


@pytest.mark.parametrize("replies", [b"-ERR unknown command 'HELLO'\r\n", HELLO + b"-NOPERM no permission\r\n"])
def test_a_server_that_does_not_track_says_so(raw: Raw, replies: bytes) -> None:
    line = TrackingConnection(raw)
    raw.server.sendall(replies)
    with pytest.raises(TrackingRefused):
        list(line.messages())


@pytest.mark.parametrize("sent", [b"", HELLO + b"+O", b"HTTP/1.1 400 Bad Request\r\n"])
def test_a_connection_that_ends_or_says_no_reply_is_lost(raw: Raw, sent: bytes) -> None:
    line = TrackingConnection(raw)
    raw.server.sendall(sent)
    raw.server.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError):
        list(line.messages())


def test_a_silent_connection_is_tested_once_and_then_given_up(raw: Raw) -> None:
    line = TrackingConnection(raw)
    now = line.heard_at
    assert not line.is_dead(now + 29)
    assert not line.is_dead(now + 31)
    assert not line.is_dead(now + 31.9)
    assert line.is_dead(now + 32.1)
    raw.server.sendall(HELLO + b"+OK\r\n+PONG\r\n")
    assert list(line.messages()) == []
    assert not line.is_dead(line.heard_at + 1)
    assert raw.server.recv(1000).count(b"PING") == 1
