"""Counts the commands that clients send to Redis servers."""

from __future__ import annotations

import re
import select
import socket
import time
from collections import Counter
from contextlib import ExitStack

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
