"""Deletes old jobs, hands jobs to the archiver, and describes the server for `doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any

from django_jobs.core.times import Times
from django_jobs.core.values import JobInfo
from django_jobs.exceptions import StoreCorrupt, StoreError, StoreUnavailable
from django_jobs.samples import times
from django_jobs.samples.log import COARSE, KEPT, fields_of, take
from django_jobs.serialization.checked import read_count, read_number
from django_jobs.stores.redis.connection.entries import read_ended
from django_jobs.stores.redis.connection.keys import FLEET, FLEET_KEYS, IDENTITY_KEYS, PLACES, QUEUE_KEYS
from django_jobs.stores.redis.connection.scripts import Argument, load
from django_jobs.stores.redis.stats import Stats, read_totals
from django_jobs.stores.values.answers import UpkeepDue
from django_jobs.stores.values.sizes import FIRST_READ, MAX_BATCH, MAX_BYTES, READ_MORE, chunks

#: Minutes of the charts, and kept answers, older than this are dropped (ms).
SERIES_KEPT = 25 * 3_600_000
ANSWERS_KEPT = 3_600_000
#: Seconds between two checks for them.
TIDY_EVERY = 300.0
#: An identity is kept for this long at least (ms): a process may stand still between its reservation and its job.
LEAST_KEPT = 3_600_000
#: Identities that one call looks at in each place.
FORGOTTEN_AT_ONCE = 200
#: Queues in one call that reads the sizes of all their keys: some milliseconds if all of them are in use.
CHECKED_AT_ONCE = 150


def _type_of(name: str) -> str:
    """Return the type that a key should have, from its full name."""
    if ":document:" in name:
        return "hash"
    return (QUEUE_KEYS | IDENTITY_KEYS | FLEET_KEYS)[name.rpartition(":")[2]]


class Upkeep(Stats):
    """How old jobs are deleted, and how finished jobs leave the store for the archive.

    With `StoreOptions.archive`, every job that ends is also added to the end of its queue's backlog.  If the backlog
    holds `StoreOptions.backlog` jobs, the job is not added, and the total "not_archived" counts it."""

    def upkeep_due(self, queues: Sequence[str]) -> dict[str, UpkeepDue]:
        """Tell what maintenance has to do in these queues; the rest as for `lapsed` in settling.py."""
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
        for queue, (now, taken, texts, totals) in self._sampled(queues, "sample", *fields).items():
            known = zip(("taken", *fields), (taken, *texts), strict=False)  # the hours only if they are needed
            stored = {name: (text or b"").decode(errors="replace") for name, text in known}
            changes = take(stored, read_totals(totals), read_number(now))
            if changes:
                flat: list[Argument] = [part for field, text in changes.items() for part in (field, text)]
                if put_away := times.due(read_number(taken), read_number(now)):
                    put = times.write(self._times_of(queue), read_number(now))
                    flat += [part for field in put_away for part in (field, put)]
                written[queue] = [taken, len(flat), *flat]
        step = len(written) if self.transport.spans else 1
        for some in chunks(list(written), max(step, 1)):
            keys = [self._script("sample", queue)[1][0] for queue in some]
            given = [argument for queue in some for argument in written[queue]]
            self._call(load("sample"), keys, some[0], (KEPT[COARSE], *given))

    def _times_of(self, queue: str) -> dict[str, Times]:
        """Return the times of a queue; none if they are damaged: numbers for people must not stop the samples."""
        try:
            return self.times([queue])[queue]
        except StoreUnavailable:
            raise
        except StoreError:
            return {}

    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        """Delete the jobs that HISTORY and DEAD no longer keep.  Returns state → number of deleted jobs (≤ limit
        each)."""
        o = self.options
        kept = (o.history, o.history_ttl, o.dead, o.dead_ttl)
        flat = self._run("prune", queue, *kept, min(limit, MAX_BATCH), o.idempotency)
        out: dict[str, int] = {}
        for i in range(0, len(flat), 2):
            out[flat[i].decode()] = out.get(flat[i].decode(), 0) + int(flat[i + 1])
        if self._tidy(queue):
            self._drop_old_minutes(queue)
        self._tidy(FLEET)
        return out

    def _tidy(self, place: str) -> bool:
        """Drop old answers to calls, unless this was done a short time ago."""
        tidied: dict[str, float] = self.__dict__.setdefault("_tidied", {})
        if monotonic() - tidied.get(place, -TIDY_EVERY) < TIDY_EVERY:
            return False
        self._drop_old_answers(place)
        tidied[place] = monotonic()
        return True

    def forget_identities(self) -> int:
        """Forget ids of callers whose queues do not remember them any more (see `Store.reserve`).  Returns the number
        of those that were looked at; as long as it is not 0, there may be more.

        The queue decides, because the time counts from the end of the job: an identity whose job is there, or is
        remembered, is looked at again when that may be over."""
        places = [f"/{n}" for n in range(PLACES)]
        age = max(self.options.idempotency, LEAST_KEPT)
        try:
            old = self._read_over("old_homes", places, age, FORGOTTEN_AT_ONCE, at_once=PLACES)
        except StoreCorrupt:
            return self._set_aside([name for place in places for name in self.keys.of(place).values()])
        looked = 0
        for place, ((before, *flat),) in old.items():
            held: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
            if held:
                kept_from = self._remembered_from(held)
                args = [text for id, each in held.items() for text in (id, each, kept_from.get(id, ""))]
                self._run("forget_homes", place, int(before), *args)
                self._tidy(place)
            looked += len(held)
        return looked

    def _remembered_from(self, held: Mapping[bytes, bytes]) -> dict[bytes, int]:
        """Return, for those of these ids that their queues remember, the time (ms) from which they do.

        `held`: id → its reservation."""
        found: dict[bytes, int] = {}
        by_queue: dict[str, list[bytes]] = {}
        for id, each in held.items():
            by_queue.setdefault(each.partition(b":")[2].decode(errors="replace"), []).append(id)
        now = self.now()
        for queue, ids in by_queue.items():
            names = self.keys.of(queue)
            entries, times = self.transport.pipeline(
                [("HMGET", names["remembered"], *ids), ("ZMSCORE", names["remembered_at"], *ids)]
            )
            for id, entry, at in zip(ids, entries, times, strict=True):
                if entry is None or entry.startswith(b"moved:"):
                    continue
                began = read_number(at or 0) if b":" in entry else now  # without a state, its job is still there
                if b":" not in entry or began + self.options.idempotency > now:
                    found[id] = began
        return found

    def _set_aside(self, names: Sequence[str]) -> int:
        """Rename keys of a wrong type to <key>:set-aside:<ms>, where a person can look at them.  If another process
        has done so first, the name may belong to a sound key again."""
        done = 0
        for name in names:
            done += self.transport.run(
                load("set_aside"), [name, f"{name}:set-aside:{self.now()}"], (self._clock(), _type_of(name))
            )
        return done

    def fleet_faults(self, documents: Sequence[str], *, set_aside: bool = False) -> list[str]:
        """Return the keys that belong to no queue and hold data of the wrong type, after these names in `documents`.
        With `set_aside`, each is renamed as those of queues are, and the next write makes it anew."""
        names = [self.keys.fleet(key) for key in (*FLEET_KEYS, *(f"document:{key}" for key in documents))]
        types = self.transport.pipeline([("TYPE", name) for name in names])
        wrong = [name for name, type in zip(names, types, strict=True) if type.decode() not in ("none", _type_of(name))]
        if set_aside:
            self._set_aside(wrong)
        return wrong

    def _drop_old_minutes(self, queue: str) -> None:
        """Drop old minutes.  No call will read these fields again, which is why no script is needed."""
        names, now = self.keys.of(queue), self.now()
        old = [
            field
            for field in self.transport.command("HKEYS", names["minutes"])
            if read_count(field.split(b":")[0]) < now - SERIES_KEPT
        ]
        for some in chunks(old):
            self.transport.command("HDEL", names["minutes"], *some)

    def _drop_old_answers(self, place: str) -> None:
        """Drop old answers, as old minutes."""
        key, now = self.keys.answers(place), self.now()
        flat, gone = self.transport.command("HGETALL", key), []
        for i in range(0, len(flat), 2):
            at = flat[i + 1].split(b":", 2)[1:2]
            if not at or read_count(at[0]) < now - ANSWERS_KEPT:
                gone.append(flat[i])
        for some in chunks(gone):
            self.transport.command("HDEL", key, *some)

    def check_turn(self, queue: str, checker: str, lease: int) -> int:
        """Tell whether this process may call `reconcile` for the queue, or, with FLEET, look after the queues that no
        worker serves: 0 if it may, and then no other may for `lease` ms; otherwise after how many ms it should ask
        again."""
        try:
            return int(self._run("check_turn", queue, checker, lease))
        except StoreCorrupt:  # the key of the turn, or of answers, is damaged: all may check, and mend it
            return 0

    # -- archive --------------------------------------------------------------

    def archive_turns(self, queues: Sequence[str], archiver: str, lease: int) -> list[str]:
        """Return those of the queues whose backlog is not empty and that this archiver may now empty.

        It has the turn for `lease` ms from now.  A queue is left out while another archiver has its turn.  A turn only
        keeps archivers from doing the same work twice: without one, `archive_batch` and `archive_done` do no harm."""
        try:
            turns = self._run_over("archive_turns", queues, archiver, lease)
        except StoreCorrupt:  # of one queue: it is left out, until `reconcile` or doctor has mended it
            if len(queues) == 1:
                return []
            return [queue for each in queues for queue in self.archive_turns([each], archiver, lease)]
        return [queue for queue, mine in zip(queues, turns, strict=True) if mine]

    def archive_leave(self, queues: Sequence[str], archiver: str) -> None:
        """End the turns that this archiver has: another one need not wait for the end of its lease."""
        self._run_over("archive_leave", queues, archiver)

    def archive_batch(self, queue: str, limit: int = MAX_BATCH, skip: int = 0) -> list[tuple[int | str, JobInfo]]:
        """Return jobs of the backlog after the first `skip`, oldest first, each with its key; fewer than `limit` if
        they together reach MAX_BYTES.

        The jobs are only read; `archive_done` removes them.  Each info has state, end, result and attempts as they
        were at the end; a job that is revived and finishes again is returned again."""
        entries, size, most = list[bytes](), 0, FIRST_READ
        while size < MAX_BYTES and (wanted := min(most, limit - len(entries))) > 0:
            at = skip + len(entries)
            entries += self.transport.command("LRANGE", self.keys.of(queue)["archive"], at, at + wanted - 1)
            if skip + len(entries) < at + wanted:
                break
            size, most = sum(map(len, entries)), most * READ_MORE
        return [(sha1(entry, usedforsecurity=False).hexdigest(), read_ended(queue, entry)) for entry in entries]

    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        """Remove from the backlog what one `archive_batch` returned and the archiver has written.

        `keys` are all its keys, in order.  A call that arrives twice or late removes no job that was not written, also
        if another archiver has emptied a part of the backlog, or a server has lost its last second."""
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


def _text_info(reply: Any) -> dict[str, str]:
    """Return INFO as a mapping, whether the client parsed it or not."""
    if isinstance(reply, dict):
        return {str(key): str(value) for key, value in reply.items()}
    lines = (line.partition(":") for line in bytes(reply).decode(errors="replace").splitlines() if ":" in line)
    return {key: value for key, _, value in lines}
