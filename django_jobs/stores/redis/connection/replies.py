"""Commands and replies on one connection, without knowledge of scripts and errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import redis

Argument = str | bytes | int | float


def in_order(connection: redis.Connection, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send the commands together, and return their replies."""
    connection.send_packed_command(connection.pack_commands(commands))
    return [connection.read_response() for _ in commands]


def as_sent(reply: Any) -> Any:
    """Undo the cluster client's conversions (HGETALL and HSCAN to dicts, scores to pairs): return flat lists."""
    if isinstance(reply, dict) and all(isinstance(key, bytes) for key in reply):
        return [part for pair in reply.items() for part in pair]
    if isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[1], (dict, list)):
        return reply[0], as_sent(reply[1])
    if isinstance(reply, list) and reply and isinstance(reply[0], tuple):
        return [part for pair in reply for part in pair]
    return reply


def abandon(pool: Any) -> None:
    """Drop the sockets in a copy of the process: the pool's methods may wait for a lock of a thread not in the copy."""
    connections = {c for name in ("_available_connections", "_in_use_connections") for c in getattr(pool, name, ())}
    for connection in connections:
        if (sock := getattr(connection, "_sock", None)) is not None:
            os.close(sock.detach())
    if hasattr(pool, "_lock"):
        pool._lock = threading.RLock()
