"""Everything under one prefix of a Redis, as plain values that compare."""

from __future__ import annotations

from typing import Any

import redis

READERS = {
    b"hash": lambda client, key: client.hgetall(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"string": lambda client, key: client.get(key),
    b"set": lambda client, key: client.smembers(key),
}


def dump(client: redis.Redis, pattern: str = "*") -> dict[bytes, Any]:
    """key → value of every key that matches."""
    return {key: READERS[client.type(key)](client, key) for key in sorted(client.scan_iter(pattern, count=1000))}


def difference(before: dict[bytes, Any], after: dict[bytes, Any]) -> dict[bytes, tuple[Any, Any]]:
    """What changed: key → (before, after)."""
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
