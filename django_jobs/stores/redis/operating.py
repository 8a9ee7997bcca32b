"""RedisStore: the methods by which people change jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from django_jobs.core.queue_stats import signed
from django_jobs.core.values import Edited, State, WorkerInfo
from django_jobs.stores.contract.documents import DocumentStore, read_entry, read_worker
from django_jobs.stores.contract.fleet import FleetStore
from django_jobs.stores.contract.operating import OperatingStore, check_finished
from django_jobs.stores.contract.queues import QueueStore
from django_jobs.stores.redis.connection.entries import read_number, texts, unsigned_text
from django_jobs.stores.redis.connection.part import RedisPart
from django_jobs.stores.redis.connection.replies import Argument

#: The keys with the ids of a state, for walking through them; blocked and running are in hashes, queued in two lanes.
WALKED = {
    State.SCHEDULED: ("scheduled",),
    State.QUEUED: ("queued", "alone"),
    State.RETRY: ("retry",),
    State.RUNNING: ("claims",),
    State.BLOCKED: ("waits",),
    State.SUCCEEDED: ("succeeded", "kept"),
    State.DEAD: ("dead",),
    State.CANCELLED: ("cancelled",),
    State.EXPIRED: ("expired",),
}


class RedisOperating(RedisPart, OperatingStore, QueueStore, FleetStore, DocumentStore):
    """See stores/contract/operating.py, queues.py, fleet.py and documents.py for the contract of each method."""

    def cancel(self, queue: str, ids: Sequence[str]) -> dict[str, State]:
        flat = texts(self._run_once("cancel", queue, self._archiving, *ids)) if ids else []
        return {flat[i]: State(flat[i + 1]) for i in range(0, len(flat), 2)}

    def revive(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        record: bytes | None = None,
        at: int | None = None,
        start_again: bool = True,
    ) -> list[str]:
        if (record is not None or at is not None) and len(ids) != 1:
            raise ValueError(f"A new record or a time goes with one job, not {len(ids)}.")
        seen, again = "" if at is None else at, "again" if start_again else ""
        return texts(self._run_once("revive", queue, record or b"", seen, again, *ids)) if ids else []

    def edit(self, queue: str, id: str, record: bytes, *, was: bytes) -> Edited:
        return Edited(self._run("edit", queue, id, was, record).decode())

    def delete(self, queue: str, ids: Sequence[str]) -> list[str]:
        return texts(self._run_once("delete", queue, *ids)) if ids else []

    def kill(self, queue: str, ids: Sequence[str], reason: str) -> list[str]:
        line = unsigned_text("killed", reason)
        return texts(self._run_once("kill", queue, line, self._archiving, *ids)) if ids else []

    def reschedule(self, queue: str, ids: Sequence[str], run_at: int) -> list[str]:
        return texts(self._run_once("reschedule", queue, run_at, *ids)) if ids else []

    def pause(self, queue: str, *, name: str | None = None, reason: str = "", until: int = 0, by: str = "") -> None:
        self._run_once("pause", queue, name or "", until, signed(reason, by))

    def resume(self, queue: str, *, name: str | None = None) -> None:
        self._run_once("resume", queue, name or "")

    def restore(self, queue: str, id: str, record: bytes, state: State) -> bool:
        check_finished(state)
        return bool(self._run_once("restore", queue, id, record, state.value))

    def ids(self, queue: str, state: State, cursor: str = "", limit: int = 1000) -> tuple[list[str], str]:
        """The cursor is `key:redis cursor`.  SCAN returns every id that stays, and some twice if the key is resized
        between two calls.  (A walk in the order of scores would miss a job whose score changes.)"""
        keys = WALKED[state]
        name, _, position = (cursor or f"{keys[0]}:0").partition(":")
        if name not in keys or not position.isdigit():
            raise ValueError(f"{cursor!r} is not a cursor that ids() returned for {state}.")
        verb = "HSCAN" if state in (State.RUNNING, State.BLOCKED) else "ZSCAN"
        following, flat = self.transport.command(verb, self.keys.of(queue)[name], position, "COUNT", limit)
        found = list(dict.fromkeys(texts(flat[::2])))
        if int(following):
            return found, f"{name}:{int(following)}"
        rest = keys[keys.index(name) + 1 :]
        return found, f"{rest[0]}:0" if rest else ""

    # -- workers and shared documents ----------------------------------------

    def publish_worker(self, name: str, info: Mapping[str, Any], ttl: int) -> list[str]:
        script, _ = self._script("publish_worker", "")
        keys = [self.keys.fleet(key) for key in ("workers", "seen", f"commands:{name}")]
        args = (self._clock(), name, json.dumps(dict(info)), ttl, os.urandom(9).hex())
        return texts(self.transport.run(script, keys, args))

    def forget_worker(self, name: str) -> None:
        self.transport.command("HDEL", self.keys.fleet("workers"), name)
        self.transport.command("ZREM", self.keys.fleet("seen"), name)
        self.transport.command("DEL", self.keys.fleet(f"commands:{name}"))

    def command_worker(self, name: str, command: str) -> bool:
        script, _ = self._script("command_worker", "")
        keys = [self.keys.fleet(key) for key in ("seen", f"commands:{name}")]
        return bool(self.transport.run(script, keys, (self._clock(), name, command)))

    def workers(self) -> list[WorkerInfo]:
        flat = self.transport.command("HGETALL", self.keys.fleet("workers"))
        now, out = self.now(), []
        alive = set(texts(self.transport.command("ZRANGEBYSCORE", self.keys.fleet("seen"), f"({now}", "+inf")))
        for i in range(0, len(flat), 2):
            name = flat[i].decode(errors="replace")
            seen_at, _, info = flat[i + 1].partition(b":")
            if name in alive:
                at = min(read_number(seen_at), now) or now  # it is alive, so this cannot be far from the truth
                out.append(WorkerInfo(name, at, read_worker(info)))
        return sorted(out)

    def get_document(self, key: str) -> dict[str, Any]:
        flat = self.transport.command("HGETALL", self.keys.fleet(f"document:{key}"))
        return {flat[i].decode(errors="replace"): read_entry(flat[i + 1]) for i in range(0, len(flat), 2)}

    def update_document(
        self, key: str, changes: Mapping[str, Any], *, expected: Mapping[str, Any] | None = None
    ) -> bool:
        script, _ = self._script("update_document", "")
        wanted = [(field, "" if value is None else json.dumps(value)) for field, value in (expected or {}).items()]
        changed = [(field, json.dumps(value)) for field, value in changes.items() if value is not None]
        removed = [field for field, value in changes.items() if value is None]
        args: list[Argument] = [self._clock(), len(wanted), *chain.from_iterable(wanted)]
        args += [len(changed), *chain.from_iterable(changed), *removed]
        return bool(self.transport.run(script, [self.keys.fleet(f"document:{key}")], args))
