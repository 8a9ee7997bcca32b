"""Deletes old jobs, hands jobs to the archiver, and describes the server for `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from time import monotonic
from typing import Any

from django_jobs.core.values import Attempt, JobInfo, State
from django_jobs.samples.log import COARSE, KEPT, fields_of, take
from django_jobs.stores.redis.connection.entries import chunks, read_attempts, read_number, read_tries
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE
from django_jobs.stores.redis.connection.scripts import Argument, load
from django_jobs.stores.redis.stats import Stats, read_totals
from django_jobs.stores.values.answers import UpkeepDue
from django_jobs.stores.values.sizes import FIRST_READ, MAX_BATCH, MAX_BYTES, READ_MORE

#: Minutes of the charts, and kept answers, older than this are dropped (ms).
SERIES_KEPT = 25 * 3_600_000
ANSWERS_KEPT = 3_600_000
#: Seconds between two checks for them.
TIDY_EVERY = 300.0
#: Queues in one call that reads the sizes of all their keys: some milliseconds if all of them are in use.
CHECKED_AT_ONCE = 150


class Upkeep(Stats):
    """How old jobs are deleted, and how finished jobs leave the store for the archive.

    With `StoreOptions.archive`, every job that ends is also added to the end of its queue's outbox.  If the outbox
    holds `StoreOptions.backlog` jobs, the job is not added, and the total "not_archived" counts it."""

    def lapsed(self, queues: Sequence[str]) -> list[str]:
        """Return the queues in which `recover` may find something: a lease has ended.  As few round trips as the store
        can.  Queues of servers that do not answer are left out; raises StoreUnavailable if none answers."""
        found = self._read_over("lapsed", queues, at_once=LOOKED_INTO_AT_ONCE)
        return [queue for queue, (ended,) in found.items() if ended]

    def upkeep_due(self, queues: Sequence[str]) -> dict[str, UpkeepDue]:
        """Tell what maintenance has to do in these queues; the rest as for `lapsed`."""
        o, script = self.options, load("upkeep")
        kept = (o.history, o.history_ttl, o.dead, o.dead_ttl, o.idempotency)
        types = [QUEUE_KEYS[name] for name in script.keys]
        found = self._read_over("upkeep", queues, *kept, *types, at_once=CHECKED_AT_ONCE, width=3)
        return {
            queue: UpkeepDue(bool(prune), None if sizes == b"?" else sizes.decode(), bool(sample))
            for queue, (prune, sizes, sample) in found.items()
        }

    def sample(self, queues: Sequence[str]) -> None:
        """Take a sample of the totals of each of these queues that had none in these five minutes (samples/log.py).

        Of several workers that do this at the same time, one has an effect.  Samples disappear eight days after the
        last was taken.  At most 20 queues."""
        fields = [field for width in KEPT for field in fields_of(width)]
        written: dict[str, list[Argument]] = {}
        for queue, (now, taken, flat, totals) in self._sampled(queues, "sample", *fields).items():
            texts = [text.decode(errors="replace") for text in flat]
            stored = dict(zip(texts[::2], texts[1::2], strict=True)) | {"taken": taken.decode(errors="replace")}
            changes = take(stored, read_totals(totals), read_number(now))
            if changes:
                flat = [part for field, text in changes.items() for part in (field, text)]
                written[queue] = [taken, len(flat), *flat]
        step = len(written) if self.transport.spans else 1
        for some in chunks(list(written), max(step, 1)):
            keys = [self._script("sample", queue)[1][0] for queue in some]
            given = [argument for queue in some for argument in written[queue]]
            self.transport.run(load("sample"), keys, (self._clock(), KEPT[COARSE], *given))

    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        """Delete the jobs that HISTORY and DEAD no longer keep.  Returns state → number of deleted jobs (≤ limit
        each)."""
        o = self.options
        kept = (o.history, o.history_ttl, o.dead, o.dead_ttl)
        flat = self._run("prune", queue, *kept, min(limit, MAX_BATCH), o.idempotency)
        out: dict[str, int] = {}
        for i in range(0, len(flat), 2):
            out[flat[i].decode()] = out.get(flat[i].decode(), 0) + int(flat[i + 1])
        tidied: dict[str, float] = self.__dict__.setdefault("_tidied", {})
        if monotonic() - tidied.get(queue, -TIDY_EVERY) >= TIDY_EVERY:
            self._drop_old(queue)
            tidied[queue] = monotonic()
        return out

    def _drop_old(self, queue: str) -> None:
        """Drop old minutes and answers: no call will read these fields again, so no script is needed."""
        names, now = self.keys.of(queue), self.now()
        old = [
            field
            for field in self.transport.command("HKEYS", names["minutes"])
            if field.split(b":")[0].isdigit() and int(field.split(b":")[0]) < now - SERIES_KEPT
        ]
        for some in chunks(old):
            self.transport.command("HDEL", names["minutes"], *some)
        flat = self.transport.command("HGETALL", names["answers"])
        gone = []
        for i in range(0, len(flat), 2):
            at = flat[i + 1].split(b":", 2)[1:2]
            if not at or not at[0].isdigit() or int(at[0]) < now - ANSWERS_KEPT:
                gone.append(flat[i])
        for some in chunks(gone):
            self.transport.command("HDEL", names["answers"], *some)

    def check_turn(self, queue: str, checker: str, lease: int) -> int:
        """Tell whether this process may call `reconcile` for the queue: 0 if it may, and then no other may for `lease`
        ms; otherwise after how many ms it should ask again."""
        return int(self._run("check_turn", queue, checker, lease))

    # -- archive --------------------------------------------------------------

    def archive_turns(self, queues: Sequence[str], archiver: str, lease: int) -> list[str]:
        """Return those of the queues whose outbox is not empty and that this archiver may now empty.

        It has the turn for `lease` ms from now.  A queue is left out while another archiver has its turn.  A turn only
        keeps archivers from doing the same work twice: without one, `archive_batch` and `archive_done` do no harm."""
        turns = self._run_over("archive_turns", queues, archiver, lease)
        return [queue for queue, mine in zip(queues, turns, strict=True) if mine]

    def archive_leave(self, queues: Sequence[str], archiver: str) -> None:
        """End the turns that this archiver has: another one need not wait for the end of its lease."""
        self._run_over("archive_leave", queues, archiver)

    def archive_batch(self, queue: str, limit: int = MAX_BATCH, skip: int = 0) -> list[tuple[int | str, JobInfo]]:
        """Return jobs of the outbox after the first `skip`, oldest first, each with its key; fewer than `limit` if they
        together reach MAX_BYTES.

        The jobs are only read; `archive_done` removes them.  Each info has state, end, result and attempts as they
        were at the end; a job that is revived and finishes again is returned again."""
        entries, size, most = list[bytes](), 0, FIRST_READ
        while size < MAX_BYTES and (wanted := min(most, limit - len(entries))) > 0:
            at = skip + len(entries)
            entries += self.transport.command("LRANGE", self.keys.of(queue)["archive"], at, at + wanted - 1)
            if skip + len(entries) < at + wanted:
                break
            size, most = sum(map(len, entries)), most * READ_MORE
        return [(sha1(entry, usedforsecurity=False).hexdigest(), _from_archive(queue, entry)) for entry in entries]

    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        """Remove from the outbox what one `archive_batch` returned and the archiver has written.

        `keys` are all its keys, in order.  A call that arrives twice or late removes no job that was not written, also
        if another archiver has emptied a part of the outbox, or a server has lost its last second."""
        if keys:
            self._run("archive_done", queue, len(keys), keys[0], keys[-1])

    # -- doctor ---------------------------------------------------------------

    def describe(self) -> dict[str, str]:
        """Return what `doctor` shows: version, persistence, eviction policy, address without password …"""
        info = _text_info(self.transport.command("INFO"))
        return {
            "address": self.transport.where,
            "version": info.get("valkey_version") or info.get("redis_version", "unknown"),
            "server": "valkey" if "valkey_version" in info else "redis",
            "uptime_seconds": info.get("uptime_in_seconds", "unknown"),
            "eviction_policy": info.get("maxmemory_policy", "unknown"),
            "maxmemory": info.get("maxmemory", "unknown"),
            "used_memory": info.get("used_memory", "unknown"),
            "append_only_file": "on" if info.get("aof_enabled") == "1" else "off",
            "last_save_failed": "yes" if info.get("rdb_last_bgsave_status", "ok") != "ok" else "no",
            "last_append_failed": "yes" if info.get("aof_last_write_status", "ok") != "ok" else "no",
            "last_save": info.get("rdb_last_save_time", "0"),
            "evicted_keys": info.get("evicted_keys", "0"),
            "role": info.get("role", "unknown"),
            "connected_replicas": info.get("connected_slaves", "0"),
            "primary_link": info.get("master_link_status", ""),
            "connected_clients": info.get("connected_clients", "unknown"),
            "blocked_clients": info.get("blocked_clients", "unknown"),
            "maxclients": info.get("maxclients", "unknown"),
            "peak_memory": info.get("used_memory_peak", "unknown"),
            "unsaved_changes": info.get("rdb_changes_since_last_save", "unknown"),
        }


def _from_archive(queue: str, entry: bytes) -> JobInfo:
    """Read an entry (see to_archive in lua/lib/finish.lua); one that cannot be read is archived unchanged."""
    fields: list[bytes] = []
    rest = entry
    try:
        while rest:
            length, _, rest = rest.partition(b":")
            fields.append(rest[: int(length)])
            rest = rest[int(length) :]
        state, id, at, worker, tries, result, lines, record = fields
        run, _, body = result.partition(b":")
        return JobInfo(
            id.decode(),
            queue,
            record,
            State(state.decode()),
            *read_tries(tries)[:2],
            at=int(at),
            worker=worker.decode(errors="replace"),
            result=(body or b"null") if result else None,
            run_ms=int(run) if run.isdigit() else -1,
            attempts=read_attempts(lines),
        )
    except ValueError as error:
        unreadable = Attempt(0, "corrupt", 0, error=f"archive entry cannot be read: {error}")
        return JobInfo("", queue, entry, State.DEAD, attempts=(unreadable,))


def _text_info(reply: Any) -> dict[str, str]:
    """Return INFO as a mapping, whether the client parsed it or not."""
    if isinstance(reply, dict):
        return {str(key): str(value) for key, value in reply.items()}
    lines = (line.partition(":") for line in bytes(reply).decode(errors="replace").splitlines() if ":" in line)
    return {key: value for key, _, value in lines}
