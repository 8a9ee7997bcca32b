"""Counts the commands that clients send to Redis servers: all clients, seen by the server, or this process."""

from __future__ import annotations

import re
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from redis.connection import AbstractConnection

from django_jobs.stores.redis.connection.thread_connection import ThreadConnection

#: A line of MONITOR: time, [database client], "command" …  Scripts' own commands have the client "lua".
_LINE = re.compile(rb'^\+[\d.]+ \[\d+ (?!lua\])[^\]]*\] "([^"]*)"')


def sent_commands(where: tuple[str, int] | str, seconds: float) -> int:
    """Return how many commands clients send in that time, without the commands called by scripts.

    `where`: host and port, or the path of a unix socket."""
    return sent_by_name([where], seconds).total()


def sent_by_name(servers: list[tuple[str, int] | str], seconds: float) -> Counter[str]:
    """Return command → how often clients of these servers send it in that time, without the commands of scripts."""
    with ExitStack() as stack:
        lines: dict[socket.socket, bytes] = {}
        for where in servers:
            family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
            monitor = stack.enter_context(socket.socket(family))
            monitor.connect(where)
            monitor.sendall(b"MONITOR\r\n")
            lines[monitor] = b""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for monitor in select.select(list(lines), [], [], left)[0]:
                lines[monitor] += monitor.recv(1 << 20)
    found = (_LINE.match(line) for text in lines.values() for line in text.split(b"\r\n"))
    return Counter(match[1].decode().lower() for match in found if match)


class Sent:
    """The commands that this process has sent: what went into the sockets of redis-py's connections.

    They are read from the bytes, whoever packed and wrote them: our calls go past redis-py.  Only the requests
    of a worker that waits on a Cluster (connection/tracking.py) go another way."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []

    def note(self, packed: Sequence[bytes]) -> None:
        """Keep these bytes.  They are read later: the time that this takes must not be measured with a page."""
        self._packed.append(b"".join(packed))

    @property
    def commands(self) -> list[list[bytes]]:
        """The name and the arguments of each command, in the order in which they were sent."""
        return [command for packed in self._packed for command in _commands_in(packed)]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self._packed))

    def clear(self) -> None:
        """Forget what was sent so far."""
        self._packed.clear()


@contextmanager
def sent_here() -> Iterator[Sent]:
    """Yield what this process sends from now on; commands called by scripts are not among it."""
    sent, send, write = Sent(), AbstractConnection.send_packed_command, ThreadConnection.write

    def noted(connection: AbstractConnection, command: Any, *args: Any, **options: Any) -> Any:
        packed = [command] if isinstance(command, bytes) else list(command)
        sent.note(packed)
        return send(connection, packed, *args, **options)

    def written(connection: ThreadConnection, data: bytes) -> None:
        sent.note([data])
        write(connection, data)

    AbstractConnection.send_packed_command = noted  # type: ignore[method-assign]
    ThreadConnection.write = written  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
        ThreadConnection.write = write  # type: ignore[method-assign]


def _commands_in(packed: bytes) -> Iterator[list[bytes]]:
    """Yield the commands in these bytes: each is an array of strings, with its length and theirs before them."""
    at = 0

    def length() -> int:
        nonlocal at
        begin, at = at + 1, packed.index(b"\r\n", at) + 2
        return int(packed[begin : at - 2])

    while at < len(packed):
        parts = []
        for _ in range(length()):
            size = length()
            parts.append(packed[at : at + size])
            at += size + 2
        yield parts
