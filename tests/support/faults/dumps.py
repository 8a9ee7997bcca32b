"""Everything under one prefix of a Redis, as plain values that compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.client import Pipeline

READERS: dict[bytes, Callable[[Pipeline, bytes], object]] = {
    b"hash": lambda pipe, key: pipe.hgetall(key),
    b"zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    b"list": lambda pipe, key: pipe.lrange(key, 0, -1),
    b"string": lambda pipe, key: pipe.get(key),
    b"stream": lambda pipe, key: pipe.xrange(key),
    b"set": lambda pipe, key: pipe.smembers(key),
}


def dump(client: redis.Redis, pattern: str = "*") -> dict[bytes, Any]:
    """key → value of every key that matches.  Three round trips: the laws dump thousands of times."""
    keys = sorted(client.keys(pattern))
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        for key, kind in zip(keys, pipe.execute(), strict=True):
            READERS[kind](pipe, key)
        return dict(zip(keys, pipe.execute(), strict=True))


def difference(before: dict[bytes, Any], after: dict[bytes, Any]) -> dict[bytes, tuple[Any, Any]]:
    """What changed: key → (before, after)."""
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
