"""Everything under one prefix of a Redis, as plain values that compare."""

from __future__ import annotations

from typing import Any

import redis

#: One call, because the laws dump thousands of times.  What has no order in itself gets one.
SCRIPT = """
local read = {
  hash = function(key) return redis.call("HGETALL", key) end,
  zset = function(key) return redis.call("ZRANGE", key, 0, -1, "WITHSCORES") end,
  list = function(key) return redis.call("LRANGE", key, 0, -1) end,
  string = function(key) return redis.call("GET", key) end,
  stream = function(key) return redis.call("XRANGE", key, "-", "+") end,
  set = function(key) return redis.call("SMEMBERS", key) end,
}
local found = {}
for _, key in ipairs(redis.call("KEYS", ARGV[1])) do
  local kind = redis.call("TYPE", key).ok
  found[#found + 1] = {key, kind, read[kind](key)}
end
return found
"""


def dump(client: redis.Redis, pattern: str = "*") -> dict[bytes, Any]:
    """key → value of every key that matches."""
    return {key: plain(kind, value) for key, kind, value in client.eval(SCRIPT, 0, pattern)}


def plain(kind: bytes, value: Any) -> Any:
    """The fields of a hash and the members of a set come in any order."""
    if kind == b"hash":
        return dict(zip(value[::2], value[1::2], strict=True))
    return set(value) if kind == b"set" else value


def difference(before: dict[bytes, Any], after: dict[bytes, Any]) -> dict[bytes, tuple[Any, Any]]:
    """What changed: key → (before, after)."""
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
