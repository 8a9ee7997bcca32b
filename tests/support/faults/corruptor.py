"""Damages keys of a queue at random: wrong types, broken values, foreign members, absurd numbers, huge ones."""

from __future__ import annotations

import random
from collections.abc import Mapping

import redis

from django_jobs.stores.redis.connection.keys import QUEUE_KEYS

BYTES = (
    b"",
    b"\0",
    b"\xff\xfe\x80",
    b"{",
    b"[[1],{}",
    b"nan",
    b"-1",
    b"9" * 400,
    b"1:2",
    b"0:0:0:0",
    b'+\n\n\n{"limit_key":7,"unique":[],"priority":"x"}\n\n\n',
    b'+\nwork\n\n{"expires_at":"soon","unique_mode":3,"unique":"u","limit":"many","limit_key":"k"}\n0\n\n[[],{}]',
    b"-\nwork\n\n\nnever\n\n[[],{}]",
    b"-\nwork\n\n\n1\n\nnot json",
    b'-\nwork\n{"max_attempts":[]}\n\n1\n\n[[],{}]',
    b"-\nw\xc3\x28rk\n\n\n1\n\n[[],{}]",
    b"x" * 100_000,
)
SCORES = (0, -1, 1e300, float("inf"), float("-inf"), 2**53 + 1, 1.5)


class Corruptor:
    """Knows the names and types of the keys, and nothing of their meaning."""

    def __init__(
        self, client: redis.Redis, names: dict[str, str], seed: int, kinds: Mapping[str, str] = QUEUE_KEYS
    ) -> None:
        self.client, self.names, self.kinds, self.rng = client, names, kinds, random.Random(seed)
        self.done: list[str] = []

    def strike(self, *, types: bool = True) -> str:
        """One act of damage; `types`: may replace whole keys."""
        key = self.rng.choice(list(self.names))
        kind = self.kinds[key]
        acts = [getattr(self, f"_{kind}")] * 5 + ([self._type, self._delete] if types else [])
        act = self.rng.choice(acts)
        try:
            act(self.names[key])
        except redis.ResponseError:  # the key has another type since an earlier strike
            self.client.delete(self.names[key])
        self.done.append(f"{key}: {act.__name__}")
        return self.done[-1]

    def _bytes(self) -> bytes:
        return self.rng.choice(BYTES)

    def _member(self, existing: list[bytes]) -> bytes:
        return self.rng.choice(existing) if existing and self.rng.random() < 0.5 else self._bytes()

    def _hash(self, name: str) -> None:
        field = self._member(self.client.hkeys(name)[:50])
        if self.rng.random() < 0.2:
            self.client.hdel(name, field)
        else:
            self.client.hset(name, field, self._bytes())

    def _zset(self, name: str) -> None:
        member = self._member(self.client.zrange(name, 0, 50))
        if self.rng.random() < 0.2:
            self.client.zrem(name, member)
        else:
            self.client.zadd(name, {member: self.rng.choice(SCORES)})

    def _set(self, name: str) -> None:
        self.client.sadd(name, self._bytes())

    def _list(self, name: str) -> None:
        self.client.rpush(name, self._bytes())

    def _stream(self, name: str) -> None:
        self.client.xadd(name, {self._bytes(): self._bytes()})

    def _string(self, name: str) -> None:
        self.client.set(name, self.rng.choice((b"7", b"junk", b"-5", b"9" * 30)))

    def _type(self, name: str) -> None:
        self.client.delete(name)
        self.rng.choice(
            (
                lambda: self.client.set(name, b"junk"),
                lambda: self.client.rpush(name, b"junk"),
                lambda: self.client.hset(name, b"junk", b"junk"),
                lambda: self.client.zadd(name, {b"junk": 1}),
                lambda: self.client.sadd(name, b"junk"),
            )
        )()

    def _delete(self, name: str) -> None:
        self.client.delete(name)
