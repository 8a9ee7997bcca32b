"""RedisStore, upkeep: forgetting what is old, repairing what should not be, and what `doctor` asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from django_jobs.stores.redis.keys import QUEUE_KEYS
from django_jobs.stores.redis.part import RedisPart, attempt_line, read_attempts, read_claim, read_tries, texts
from django_jobs.stores.running import MAX_BATCH, MISPLACED, RunningStore
from django_jobs.values import Attempt, JobInfo, State

#: Minutes of the charts, and remembered answers, older than this are dropped (ms).
SERIES_KEPT = 25 * 3_600_000
ANSWERS_KEPT = 600_000
#: Seconds between two looks for them.
TIDY_EVERY = 300.0
#: A claim found without a lease gets one this long (ms): time for its worker, if it lives, to renew it.
GRACE = 10_000
#: A repair looks into a dozen keys for each job: no more than this in one script.
REPAIRED_AT_ONCE = 200
_MISPLACED = attempt_line(MISPLACED)
#: Every place a job can be in, with the command that counts it.
SIZES = {
    "jobs": "HLEN",
    **dict.fromkeys(("queued", "alone", "scheduled", "retry", "blocked"), "ZCARD"),
    "claims": "HLEN",
    **dict.fromkeys(("succeeded", "kept", "dead", "cancelled", "expired"), "ZCARD"),
}

#: What a step of repair reports.
KINDS = (
    "wrong_type",
    "claim_without_lease",
    "lease_without_claim",
    "lock_without_job",
    "slot_without_claim",
    "waiter_without_limit",
    "job_without_place",
    "place_without_job",
)


class RedisReconciling(RedisPart, RunningStore):
    """See stores/running.py for what each method promises."""

    def prune(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        o = self.options
        flat = self._run("prune", queue, o.history, o.history_ttl, o.dead, o.dead_ttl, min(limit, MAX_BATCH))
        out: dict[str, int] = {}
        for i in range(0, len(flat), 2):
            out[flat[i].decode()] = out.get(flat[i].decode(), 0) + int(flat[i + 1])
        tidied: dict[str, float] = self.__dict__.setdefault("_tidied", {})
        if monotonic() - tidied.get(queue, -TIDY_EVERY) >= TIDY_EVERY:
            self._drop_old(queue)
            tidied[queue] = monotonic()
        return out

    def _drop_old(self, queue: str) -> None:
        """Old minutes and answers: fields nobody will ask for again, so no script is needed."""
        names, now = self.keys.of(queue), self.now()
        old = [
            field
            for field in self.transport.command("HKEYS", names["minutes"])
            if field.split(b":")[0].isdigit() and int(field.split(b":")[0]) < now - SERIES_KEPT
        ]
        for some in _chunks(old):
            self.transport.command("HDEL", names["minutes"], *some)
        flat = self.transport.command("HGETALL", names["answers"])
        gone = []
        for i in range(0, len(flat), 2):
            at = flat[i + 1].split(b":", 2)[1:2]
            if not at or not at[0].isdigit() or int(at[0]) < now - ANSWERS_KEPT:
                gone.append(flat[i])
        for some in _chunks(gone):
            self.transport.command("HDEL", names["answers"], *some)

    # -- repair ---------------------------------------------------------------

    def reconcile(self, queue: str, limit: int = MAX_BATCH) -> dict[str, int]:
        out = dict.fromkeys(KINDS, 0)
        script, _ = self._script("survey", queue)
        wrong, sizes, ended = self._run("survey", queue, *(QUEUE_KEYS[name] for name in script.keys))
        if wrong:
            out["wrong_type"] = self._set_aside(texts(wrong))
            return out  # the next step finds keys that can be read
        size = dict(zip(script.keys, sizes, strict=True))
        names = self.keys.of(queue)
        claims = dict(self._hash(names["claims"], limit)) if size["claims"] else {}
        if claims:
            leases = set(texts(self.transport.command("ZRANGE", names["leases"], 0, -1)))
            homeless = [id for id, claim in claims.items() if read_claim(claim)[2] not in leases]
            out["claim_without_lease"] = self._repair(queue, "claims", homeless)
        holding = {read_claim(claim)[2] for claim in claims.values()}
        # Of a worker nothing is known unless all claims were read; a remote holder has one, which the script looks at.
        whole = len(claims) >= size["claims"]
        out["lease_without_claim"] = self._repair(
            queue,
            "leases",
            [name for name in texts(ended) if name not in holding and (whole or name.startswith("remote:"))],
        )
        if size["unique"]:
            locks = [digest for digest, _ in self._hash(names["unique"], limit)]
            out["lock_without_job"] = self._repair(queue, "locks", locks)
        if size["slots"]:
            members = texts(self.transport.command("ZRANGE", names["slots"], 0, limit - 1))
            out["slot_without_claim"] = self._repair(queue, "slots", members)
        if size["blocked"]:
            out["waiter_without_limit"] = self._repair(queue, "waiters", self._first_waiters(queue, limit))
        out["job_without_place"], out["place_without_job"] = self._misplaced(queue, size, limit)
        return out

    def _repair(self, queue: str, kind: str, what: Sequence[str]) -> int:
        head = (kind, GRACE, _MISPLACED, self._archiving)
        return sum(int(self._run("repair", queue, *head, *some)) for some in _chunks(what, REPAIRED_AT_ONCE))

    def _set_aside(self, names: Sequence[str]) -> int:
        """Rename keys of another type than ours to <key>:set-aside:<ms>, where a person can look at them."""
        for name in names:
            self.transport.command("RENAME", name, f"{name}:set-aside:{self.now()}")
        return len(names)

    def _misplaced(self, queue: str, size: dict[str, int], limit: int) -> tuple[int, int]:
        """Every job is in exactly one place, so the sizes of places add up to the number of jobs.  When they do not,
        twice in a row, all jobs and places are walked; otherwise the next `limit` of each are looked at, because
        faults of opposite kinds leave the sums equal.  What is empty is not looked at."""
        names = self.keys.of(queue)
        whole = not _balanced(size) and not self._still_balanced(queue)

        def repaired(kind: str, verb: str, key: str) -> int:
            if not size[key]:
                return 0
            batches = self._walk(verb, names[key]) if whole else [self._next_ids(verb, names[key], limit)]
            return sum(self._repair(queue, kind, some) for some in batches)

        missing, dangling = repaired("jobs", "HSCAN", "jobs"), repaired("places", "HSCAN", "waits")
        for place, counter in SIZES.items():
            if place not in ("jobs", "blocked"):
                dangling += repaired("places", "HSCAN" if counter == "HLEN" else "ZSCAN", place)
        return missing, dangling

    def _still_balanced(self, queue: str) -> bool:
        names = self.keys.of(queue)
        sizes = self.transport.pipeline([(verb, names[place]) for place, verb in SIZES.items()])
        return _balanced(dict(zip(SIZES, sizes, strict=True)))

    def _walk(self, verb: str, key: str) -> Iterator[list[str]]:
        cursor = 0
        while True:
            reply, flat = self.transport.command(verb, key, cursor, "COUNT", MAX_BATCH)
            cursor = int(reply)
            yield texts(flat[::2])
            if cursor == 0:
                return

    def _hash(self, key: str, limit: int) -> Iterator[tuple[str, bytes]]:
        """The fields of a hash, about `limit` of them, beginning at a place that moves on from call to call."""
        for id, value in self._next("HSCAN", key, limit, "values"):
            yield id.decode(errors="replace"), value

    def _next_ids(self, verb: str, key: str, limit: int) -> list[str]:
        return texts([id for id, _ in self._next(verb, key, limit, "ids")])

    def _next(self, verb: str, key: str, limit: int, walker: str) -> Iterator[tuple[bytes, bytes]]:
        cursors: dict[tuple[str, str], int] = self.__dict__.setdefault("_cursors", {})
        seen, at = 0, (walker, key)
        while seen < limit:
            reply, flat = self.transport.command(verb, key, cursors.get(at, 0), "COUNT", limit)
            cursors[at] = int(reply)
            for i in range(0, len(flat), 2):
                seen += 1
                yield flat[i], flat[i + 1]
            if cursors[at] == 0:
                return

    def _first_waiters(self, queue: str, limit: int) -> list[str]:
        """The first member of each key in `blocked`: at most a hundred keys a step."""
        name, out, after = self.keys.of(queue)["blocked"], [], "-"
        for _ in range(min(limit, 100)):
            head = self.transport.command("ZRANGEBYLEX", name, after, "+", "LIMIT", 0, 1)
            if not head:
                break
            member = head[0].decode(errors="replace")
            out.append(member)
            after = "(" + member.partition("\0")[0] + "\1"
        return out

    # -- archive --------------------------------------------------------------

    def archive_batch(self, queue: str, limit: int = MAX_BATCH) -> list[tuple[int | str, JobInfo]]:
        entries = self.transport.command("LRANGE", self.keys.of(queue)["archive"], 0, limit - 1)
        return [(entry.hex(), _from_archive(queue, entry)) for entry in entries]

    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        for key in keys:  # by value: two archivers may have read the same entries
            self.transport.command("LREM", self.keys.of(queue)["archive"], 1, bytes.fromhex(str(key)))

    # -- doctor ---------------------------------------------------------------

    def describe(self) -> dict[str, str]:
        info = _text_info(self.transport.command("INFO"))
        return {
            "kind": "redis",
            "address": self.transport.where,
            "version": info.get("valkey_version") or info.get("redis_version", "unknown"),
            "server": "valkey" if "valkey_version" in info else "redis",
            "uptime_seconds": info.get("uptime_in_seconds", "unknown"),
            "eviction_policy": info.get("maxmemory_policy", "unknown"),
            "maxmemory": info.get("maxmemory", "unknown"),
            "used_memory": info.get("used_memory", "unknown"),
            "append_only_file": "on" if info.get("aof_enabled") == "1" else "off",
            "last_save_failed": "yes" if info.get("rdb_last_bgsave_status", "ok") != "ok" else "no",
            "role": info.get("role", "unknown"),
            "connected_replicas": info.get("connected_slaves", "0"),
        }


def _from_archive(queue: str, entry: bytes) -> JobInfo:
    """See to_archive in lua/lib/finish.lua; what cannot be read is archived as it is."""
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
    """INFO as a mapping, whether the client parsed it or not."""
    if isinstance(reply, dict):
        return {str(key): str(value) for key, value in reply.items()}
    lines = (line.partition(":") for line in bytes(reply).decode(errors="replace").splitlines() if ":" in line)
    return {key: value for key, _, value in lines}


def _balanced(size: dict[str, int]) -> bool:
    return size["jobs"] == sum(size[place] for place in SIZES if place != "jobs")


def _chunks(values: Sequence[Any], size: int = MAX_BATCH) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
