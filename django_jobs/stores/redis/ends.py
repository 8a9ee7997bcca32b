"""RedisStore: reports the ends of jobs.  All waiting processes read one stream of the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_jobs.stores.contract.ends import EndsStore
from django_jobs.stores.redis.connection.entries import texts
from django_jobs.stores.redis.connection.part import RedisPart


class RedisEnds(RedisPart, EndsStore):
    """See stores/contract/ends.py for the contract of each method."""

    def watch_ends(self, queue: str, ids: Sequence[str]) -> tuple[Any, list[str]]:
        last, *over = self._run("watch", queue, *ids)
        return last, texts(over)

    def next_ends(
        self, queue: str, after: Any, waited: Callable[[], list[str]], timeout: float
    ) -> tuple[list[str], Any]:
        name = self.keys.of(queue)["ends"]
        block = max(1, round(timeout * 1000))
        told = self.transport.blocking(timeout, "XREAD", "COUNT", 1000, "BLOCK", block, "STREAMS", name, after)
        entries = told[0][1] if told else []
        # The cluster client returns the fields as a dict.
        ended = [(fields.get(b"id", b"") if isinstance(fields, dict) else fields[1]) for _, fields in entries]
        return texts(ended), entries[-1][0] if entries else after
