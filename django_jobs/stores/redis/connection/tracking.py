"""A connection on which the server reports changes of the keys that it has read (CLIENT TRACKING, RESP3).

redis-py handles these reports only while it reads a reply, and differently in each of its versions.  Here redis-py
opens the connection (with TLS, user and password), and hiredis reads it.
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Iterator
from time import monotonic
from typing import Any

import hiredis
import redis

from django_jobs.stores.redis.connection.thread_connection import NOT_ENOUGH_DATA, packed

#: Seconds to connect, and to send.  Both must not hold up the queues of the other nodes for long.
CONNECT = 0.5
#: Seconds of silence after which a connection is tested, and in which it must then answer.
QUIET, ANSWER = 30.0, 1.0
#: The commands that turn tracking on.
_FIRST = (packed("HELLO", "3"), packed("CLIENT", "TRACKING", "ON"))


class TrackingRefused(Exception):
    """The server does not offer CLIENT TRACKING, or not to this user."""


class TrackingConnection:
    """One connection to one node."""

    def __init__(self, raw: redis.Connection) -> None:
        raw.socket_connect_timeout = CONNECT
        raw.connect()
        self._raw = raw
        self._socket: Any = raw._sock
        # An error from the server is read as a value.  Bytes that are no reply are an OSError, like a lost connection.
        self._reader = hiredis.Reader(
            protocolError=ConnectionError, replyError=TrackingRefused, notEnoughData=NOT_ENOUGH_DATA
        )
        #: The key of each LLEN that was not answered yet, and "" for each other command.
        self._unanswered: deque[str] = deque()
        self._setting_up = len(_FIRST)
        self.heard_at = monotonic()
        self.tested_at: float | None = None
        try:
            self._send(b"".join(_FIRST), [""] * len(_FIRST))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        number: int = self._socket.fileno()
        return number

    def read_lengths(self, keys: list[str]) -> None:
        """Ask for the lengths of these lists.  From now on, the server reports their next change."""
        self._send(b"".join(packed("LLEN", key) for key in keys), keys)

    def is_dead(self, now: float) -> bool:
        """Return whether the last test was not answered in time.  Starts a test after a long silence."""
        if self.tested_at is not None:
            return now - self.tested_at > ANSWER
        if now - self.heard_at > QUIET:
            self.tested_at = now
            self._send(packed("PING"), [""])
        return False

    def messages(self) -> Iterator[tuple[str | None, int | None]]:
        """Yield the arguments of KeyWatch._note for all that has come.  Raises OSError once the connection is lost."""
        self._fill()
        self.heard_at, self.tested_at = monotonic(), None
        while (reply := self._reader.gets()) is not NOT_ENOUGH_DATA:
            if isinstance(reply, hiredis.PushNotification):
                if reply[0] == b"invalidate":
                    yield from [(None, None)] if reply[1] is None else [(key.decode(), None) for key in reply[1]]
                continue
            key = self._unanswered.popleft()
            if self._setting_up:
                self._setting_up -= 1
                if isinstance(reply, TrackingRefused):
                    raise reply
            elif key:
                yield key, reply if isinstance(reply, int) else -1

    def _fill(self) -> None:
        """Read what has come, without waiting."""
        self._socket.settimeout(0.0)
        while True:
            try:
                some = self._socket.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not some:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(some)

    def _send(self, data: bytes, answers: list[str]) -> None:
        self._unanswered.extend(answers)
        self._socket.settimeout(CONNECT)
        self._socket.sendall(data)

    def close(self) -> None:
        self._raw.disconnect()

    def abandon(self) -> None:
        """See Store.abandon."""
        os.close(self._socket.detach())
