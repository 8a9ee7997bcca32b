"""A connection that is told when keys change which it has read (CLIENT TRACKING, RESP3).

The driver reads such messages only while it reads a reply, and differently in each of its versions.  These connections
are therefore read here, after the driver has opened them (with TLS, user and password).
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Any

import redis

#: Seconds.  To open a connection or send to it, which must not hold up the queues of the other nodes for long.
CONNECT = 0.5
#: Seconds of silence after which a connection is tested, and in which it must then answer.
QUIET, ANSWER = 30.0, 1.0
_SENT_FIRST = 2


class Refused(Exception):
    """The server does not do this, or not for this user."""


class _NotWhole(Exception):
    """The rest of a reply is still to come."""


class _ErrorReply(str):
    """An error that the server answered."""


class Tracking:
    """One connection to one node."""

    def __init__(self, connection: redis.Connection) -> None:
        connection.socket_connect_timeout = CONNECT
        connection.connect()
        self._connection = connection
        self._socket: Any = connection._sock
        self._buffer = b""
        #: what was sent and not answered: a key, or "" for other commands.
        self._unanswered: deque[str] = deque()
        self._first = _SENT_FIRST
        self.heard_at = monotonic()
        self.tested_at: float | None = None
        try:
            self._send([("HELLO", "3"), ("CLIENT", "TRACKING", "ON")], ["", ""])
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        number: int = self._socket.fileno()
        return number

    def read_lengths(self, keys: list[str]) -> None:
        self._send([("LLEN", key) for key in keys], keys)

    def is_dead(self, now: float) -> bool:
        """Has it not answered?  Tests a connection that was silent for long."""
        if self.tested_at is not None:
            return now - self.tested_at > ANSWER
        if now - self.heard_at > QUIET:
            self.tested_at = now
            self._send([("PING",)], [""])
        return False

    def messages(self) -> Iterable[tuple[str | None, int | None]]:
        """Yield the key and its length, as KeyWatch._note wants them.  Raises OSError once the connection is lost."""
        self._fill()
        self.heard_at, self.tested_at = monotonic(), None
        at = 0
        while True:
            try:
                value, at = _parse(self._buffer, at)
            except _NotWhole:
                self._buffer = self._buffer[at:]
                return
            if isinstance(value, _Push):
                if value[:1] == [b"invalidate"]:
                    for key in [None] if value[1] is None else value[1]:
                        yield None if key is None else key.decode(), None
                continue
            key = self._unanswered.popleft()
            if self._first:
                self._first -= 1
                if isinstance(value, _ErrorReply):
                    raise Refused(value)
            elif key:
                yield key, value if isinstance(value, int) else -1

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
            self._buffer += some

    def _send(self, commands: list[tuple[str, ...]], answers: list[str]) -> None:
        self._unanswered.extend(answers)
        self._socket.settimeout(CONNECT)
        self._socket.sendall(b"".join(b"".join(self._connection.pack_command(*command)) for command in commands))

    def close(self) -> None:
        self._connection.disconnect()

    def abandon(self) -> None:
        os.close(self._socket.detach())


class _Push(list[Any]):
    """A message that is no reply."""


def _parse(text: bytes, at: int) -> tuple[Any, int]:
    """Read one value of RESP3.  Returns it, and where the next begins.  Raises _NotWhole."""
    end = text.find(b"\r\n", at)
    if end < 0:
        raise _NotWhole
    kind, rest, after = text[at : at + 1], text[at + 1 : end], end + 2
    match kind:
        case b":":
            return int(rest), after
        case b"+" | b"," | b"#" | b"(":
            return rest, after
        case b"_":
            return None, after
        case b"-":
            return _ErrorReply(rest.decode(errors="replace")), after
        case b"$" | b"=" | b"!":
            size = int(rest)
            if size < 0:
                return None, after
            if len(text) < after + size + 2:
                raise _NotWhole
            value = text[after : after + size]
            return (_ErrorReply(value.decode(errors="replace")) if kind == b"!" else value), after + size + 2
        case b"*" | b"~" | b">" | b"%" | b"|":
            values: list[Any] = _Push() if kind == b">" else []
            for _ in range(int(rest) * (2 if kind in (b"%", b"|") else 1)):
                value, after = _parse(text, after)
                values.append(value)
            return _parse(text, after) if kind == b"|" else (values, after)
    raise ConnectionError(f"the server sent a reply of an unknown kind: {kind!r}")
