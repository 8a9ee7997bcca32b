"""Counts the commands that clients send to a Redis server."""

from __future__ import annotations

import socket
import time
from contextlib import closing, suppress


def sent_commands(where: tuple[str, int] | str, seconds: float) -> int:
    """Return how many commands clients send in that time, without the commands called by scripts.

    `where`: host and port, or the path of a unix socket."""
    lines = b""
    with closing(socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)) as monitor:
        monitor.connect(where)
        monitor.sendall(b"MONITOR\r\n")
        monitor.settimeout(0.2)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(TimeoutError):
                lines += monitor.recv(65536)
    return sum(b" lua]" not in line for line in lines.splitlines()[1:])
