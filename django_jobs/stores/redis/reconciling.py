"""Repairs what no transition should leave behind, and reports it.

Long because everything that can be wrong in a queue is repaired in one step, and reported by one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from django_jobs.core.signature import signature
from django_jobs.core.values import Faults
from django_jobs.stores.redis.connection.entries import attempt_text, read_attempts, read_claim, texts
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from django_jobs.stores.redis.upkeep import Upkeep
from django_jobs.stores.values.answers import MISPLACED
from django_jobs.stores.values.sizes import MAX_BATCH, chunks

#: A claim found without a lease gets one of this length (ms), so that its worker, if alive, has time to renew it.
GRACE = 10_000
#: A repair reads a dozen keys for each job, so one script repairs no more jobs than this.
REPAIRED_AT_ONCE = 200
#: Each key of `blocked` that is checked costs a round trip, so one step checks no more than this.
BLOCKED_KEYS = 100
_MISPLACED = attempt_text(MISPLACED)
#: Every place where a job can be, with the command that counts it.
SIZES = {
    "jobs": "HLEN",
    **dict.fromkeys(("queued", "alone", "scheduled", "retry", "blocked"), "ZCARD"),
    "claims": "HLEN",
    **dict.fromkeys(("succeeded", "kept", "dead", "cancelled", "expired"), "ZCARD"),
}
#: Keys whose members may name a job that has no record.
NAMING = ("waits", *(place for place in SIZES if place not in ("jobs", "blocked")))
#: What is stored outside the records, in the order of lua/upkeep/sweep.lua.  An attempts log may be long: one script
#: reads SWEPT_AT_ONCE entries.
BESIDE = ("tries", "attempts", "results", "checkins", "stops", "since")
SWEPT_AT_ONCE = 100
_START = [0] * len(BESIDE)
#: What a walk searches for jobs in no place or in several: the kind in lua/upkeep/repair.lua, and the key.  Two keys
#: list the blocked jobs: if they differ, `blocked` comes first.  Places come before jobs: a job that only one of the
#: two keys lists is blocked again before it could be taken for lost.
WALKED_THROUGH = (("waiters", "blocked"), *(("places", key) for key in NAMING), ("jobs", "jobs"))
_REPORTED = {
    "waiters": "waiter_without_limit",
    "places": "place_without_job",
    "jobs": "job_without_place",
    "failed": "failed_without_index",
    **dict.fromkeys(("failures", "grouped", "error_groups", "tag_groups"), "index_without_failed"),
}
#: Seconds of such a walk in one call; the next call continues.  That is a few dozen scripts of some ms each: the
#: maintenance process has other work, and is replaced if it is silent for long.
STEP = 0.25
#: The kinds that a repair step reports.
KINDS = (
    "wrong_type",
    "claim_without_lease",
    "lock_without_job",
    "slot_without_claim",
    "waiter_without_limit",
    "job_without_place",
    "place_without_job",
    "entry_without_job",
    "failed_without_index",
    "index_without_failed",
)
#: The keys of the index of failed jobs, groups first: of a group that is not known, no job can be shown.
INDEX = ("error_groups", "tag_groups", "failures", "grouped")
#: What `faults` checks: kind, its name in lua/upkeep/repair.lua, key.
LOOKED_AT = (
    ("claim_without_lease", "claims", "claims"),
    ("lock_without_job", "locks", "unique"),
    ("slot_without_claim", "slots", "slots"),
    ("waiter_without_limit", "waiters", "blocked"),
    ("job_without_place", "jobs", "jobs"),
    *(("place_without_job", "places", key) for key in NAMING),
    *(("failed_without_index", "failed", key) for key in ("dead", "retry")),
    *(("index_without_failed", kind, kind) for kind in INDEX),
)
#: A walk through the index of failed jobs: what is wrong in it goes first, then the jobs that it lacks are added.
INDEX_WALK = (*((key, key) for key in INDEX), *(("failed", key) for key in ("dead", "retry")))
#: Entries of each key that a step checks if the numbers agree: one takes some hundredths of a millisecond.
INDEX_STEP = 100


@dataclass
class _Walk:
    """A walk through a whole queue: the parts that are left, and the cursor in the first of them."""

    left: list[tuple[str, str]]
    cursor: int = 0


class Reconciling(Upkeep):
    """How damage is found and repaired."""

    def reconcile(
        self, queue: str, limit: int = MAX_BATCH, *, buried: list[tuple[str, bytes]] | None = None, limits: str = ""
    ) -> dict[str, int]:
        """Repair what no transition should leave behind: one bounded step of a round.  Returns kind → number of
        repairs.

        Kinds: "claim_without_lease", "job_without_place", "place_without_job", "lock_without_job",
        "slot_without_claim", "waiter_without_limit", "wrong_type", "entry_without_job" (its log, its counts, its
        result), "failed_without_index", "index_without_failed" (after moves by a version that does not keep the index
        of failed jobs).  Leases that are over are removed by `recover` and `overdue`, which know of steps of the
        server's clock.  A job in no place is queued again, unless it has a result: then it has succeeded.  An
        at-most-once job may have started, so it goes to dead with the attempt MISPLACED.  A job in several places
        counts as "job_without_place", stays in one.

        Each step continues where the last step of this store object ended, so that steps of `limit` reach all entries
        eventually.  If the numbers of jobs show that one is misplaced, all jobs are walked through, for a quarter of a
        second in each step.  The id and record of each job that went to dead are appended to `buried`.
        `limits`: as for `let_in`, which is a part of it."""
        out = dict.fromkeys(KINDS, 0)
        wrong, size, indexed = self._survey(queue)
        if wrong:
            out["wrong_type"] = self._set_aside(wrong)
            return out  # the next step finds keys that it can read
        names = self.keys.of(queue)
        claims = dict(self._next(queue, "claims", "claims", limit)) if size["claims"] else {}
        if claims:
            leases = set(texts(self.transport.command("ZRANGE", names["leases"], 0, -1)))
            homeless = texts([id for id, claim in claims.items() if read_claim(claim)[2] not in leases])
            out["claim_without_lease"] = self._repair(queue, "claims", homeless)
        if size["unique"]:
            out["lock_without_job"] = self._repair(queue, "locks", self._next_of(queue, "locks", "unique", limit))
        if size["slots"]:
            out["slot_without_claim"] = self._repair(queue, "slots", self._next_of(queue, "slots", "slots", limit))
        if size["blocked"] and size["blocked"] == size["waits"]:
            out["waiter_without_limit"] = self._repair(
                queue, "waiters", self._first_waiters(queue, limit), limits=limits
            )
        self._misplaced(queue, size, limit, out, buried)
        if any(size[key] for key in BESIDE if key != "results") or size["results"] > size["succeeded"] + size["kept"]:
            cursors: dict[str, list[int]] = self.__dict__.setdefault("_swept", {})
            gone, cursors[queue] = self._sweep(queue, cursors.get(queue, _START))
            out["entry_without_job"] = len(gone)
        self._compare_index(queue, size, indexed, out)
        return out

    def _compare_index(self, queue: str, size: dict[str, int], indexed: list[int], out: dict[str, int]) -> None:
        """Compare the index of failed jobs with the jobs: all of them if the numbers differ (most are new to the index
        after an upgrade, and a worker of an older version does not keep it), otherwise the next few."""
        failed = size["dead"], size["retry"]
        if not any((*failed, *(size[key] for key in INDEX))):
            return
        walks: dict[str, _Walk] = self.__dict__.setdefault("_index_walks", {})
        walked: dict[str, list[int]] = self.__dict__.setdefault("_index_walked", {})
        if queue not in walks:
            numbers = [*failed, *indexed, size["grouped"], bool(size["error_groups"])]
            if numbers != [*failed, *failed, sum(failed), any(failed) or numbers[-1]] and walked.get(queue) != numbers:
                walked[queue] = numbers  # a walk that changes nothing is not repeated
                walks[queue] = _Walk([(what, key) for what, key in INDEX_WALK if size[key]])
        if queue in walks:
            if self._go_on(queue, walks[queue], out, None):
                del walks[queue]
            return
        for what, key in INDEX_WALK:
            if size[key]:
                self._mend(queue, what, self._next_of(queue, f"index:{key}", key, INDEX_STEP), out, None)

    def faults(self, queue: str, limit: int = 10_000) -> Faults:
        """Return what `reconcile` would repair, without changing anything.  Expired leases and expired unique periods
        are not reported.  About `limit` entries of each kind are checked, a thousand at a time."""
        wrong, size, _ = self._survey(queue)
        if wrong:
            return Faults({"wrong_type": wrong}, False)
        found: dict[str, list[str]] = {}
        whole = True
        cursors = _START
        for _ in range(0, limit, SWEPT_AT_ONCE):
            gone, cursors = self._sweep(queue, cursors, "look")
            found.setdefault("entry_without_job", []).extend(gone)
            if cursors == _START:
                break
        else:
            whole = False
        for kind, what, key in LOOKED_AT:
            seen = 0
            for some in self._walk(queue, key) if size[key] else ():
                if seen >= limit:
                    whole = False
                    break
                seen += len(some)
                for few in chunks(some, REPAIRED_AT_ONCE):
                    wrong = self._run("repair", queue, what, 0, "", "", "look", "", *few)[0]
                    found.setdefault(kind, []).extend(text.rpartition("\0")[2] for text in texts(wrong))
        return Faults({kind: list(dict.fromkeys(which)) for kind, which in found.items() if which}, whole)

    def _sweep(self, queue: str, cursors: list[int], how: str = "") -> tuple[list[str], list[int]]:
        """Return the jobs that are gone but have entries, and the next cursors, which start again after the end."""
        gone, following = self._run("sweep", queue, how, SWEPT_AT_ONCE, *cursors)
        return texts(gone), [int(cursor) for cursor in following]

    def _survey(self, queue: str) -> tuple[list[str], dict[str, int], list[int]]:
        """Return what was so at one moment: keys of a wrong type; the size of each other key; how many dead jobs, and
        how many that wait for a retry, the index of failed jobs has by their errors."""
        script, _ = self._script("survey", queue)
        wrong, sizes, indexed = self._run("survey", queue, *(QUEUE_KEYS[name] for name in script.keys))
        return texts(wrong), dict(zip(script.keys, sizes, strict=True)), indexed

    def _repair(
        self,
        queue: str,
        kind: str,
        what: Sequence[bytes | str],
        buried: list[tuple[str, bytes]] | None = None,
        limits: str = "",
    ) -> int:
        count = 0
        for some in chunks(what, REPAIRED_AT_ONCE):
            if kind == "failed":
                some = self._with_signatures(queue, some)
            repaired, died = self._run("repair", queue, kind, GRACE, _MISPLACED, self._archiving, "", limits, *some)
            count += len(repaired)
            if buried is not None:
                buried += zip(texts(died[::2]), died[1::2], strict=True)
        return count

    def _with_signatures(self, queue: str, ids: Sequence[bytes | str]) -> list[bytes]:
        """Return of those jobs that the index of failed jobs lacks what lua/upkeep/repair.lua needs to add them."""
        missing = self._run("repair", queue, "failed", 0, "", "", "look", "", *ids)[0]
        logs = self.transport.command("HMGET", self.keys.of(queue)["attempts"], *missing) if missing else []
        entries = list[bytes]()
        for id, log in zip(missing, logs, strict=True):
            attempts = read_attempts((log or b"").rpartition(b"\n")[2])
            text = signature(attempts[-1] if attempts else None).encode()
            failed_at = attempts[-1].at if attempts else 0
            entries.append(b"%d:%d:%b%b" % (max(0, failed_at), len(text), text, id))
        return entries

    def _misplaced(
        self, queue: str, size: dict[str, int], limit: int, out: dict[str, int], buried: list[tuple[str, bytes]] | None
    ) -> None:
        """Find misplaced jobs by the numbers of jobs.  Every job is in exactly one place, so the sizes of the places
        add up to the number of jobs.

        If they do not, twice in a row, all jobs and places are walked through, for STEP seconds in each call.
        Otherwise only the next `limit` of each are checked, because opposite faults leave the sums equal.  Empty keys
        are skipped."""
        walks: dict[str, _Walk] = self.__dict__.setdefault("_walks", {})
        same = size["blocked"] == size["waits"]
        if _balanced(size) and same:
            walks.pop(queue, None)  # the misplaced jobs have been found
        elif queue not in walks and (not same or not self._still_balanced(queue)):
            wanted = WALKED_THROUGH[same:]
            walks[queue] = _Walk([(what, key) for what, key in wanted if size[key]])
        if queue in walks:
            if self._go_on(queue, walks[queue], out, buried):
                del walks[queue]
            return
        for what, key in WALKED_THROUGH[1:]:
            if size[key]:
                self._mend(queue, what, self._next_of(queue, what, key, limit), out, buried)

    def _go_on(self, queue: str, walk: _Walk, out: dict[str, int], buried: list[tuple[str, bytes]] | None) -> bool:
        """Continue the walk for STEP seconds.  Returns whether it has ended."""
        names, until = self.keys.of(queue), monotonic() + STEP
        while walk.left:
            what, key = walk.left[0]
            reply, flat = self.transport.command(_scan(key), names[key], walk.cursor, "COUNT", REPAIRED_AT_ONCE)
            self._mend(queue, what, flat[::2], out, buried)
            walk.cursor = int(reply)
            if walk.cursor == 0:
                walk.left.pop(0)
            if monotonic() >= until:
                break
        return not walk.left

    def _mend(
        self,
        queue: str,
        what: str,
        found: Sequence[bytes],
        out: dict[str, int],
        buried: list[tuple[str, bytes]] | None,
    ) -> None:
        # A record whose id is not text stays as it is: no call could name it.
        some = texts(found) if what == "jobs" else found
        out[_REPORTED[what]] += self._repair(queue, what, some, buried if what == "jobs" else None)

    def _still_balanced(self, queue: str) -> bool:
        names = self.keys.of(queue)
        sizes = self.transport.pipeline([(verb, names[place]) for place, verb in SIZES.items()])
        return _balanced(dict(zip(SIZES, sizes, strict=True)))

    def is_walking(self, queue: str) -> bool:
        """Tell whether a walk of `reconcile` through the whole queue has begun and not ended; the next step should
        then follow soon."""
        return queue in self.__dict__.get("_walks", ()) or queue in self.__dict__.get("_index_walks", ())

    # -- walking --------------------------------------------------------------

    def _walk(self, queue: str, key: str) -> Iterator[list[bytes]]:
        cursor, name = 0, self.keys.of(queue)[key]
        while True:
            reply, flat = self.transport.command(_scan(key), name, cursor, "COUNT", MAX_BATCH)
            cursor = int(reply)
            yield flat[::2]
            if cursor == 0:
                return

    def _next(self, queue: str, kind: str, key: str, limit: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield about `limit` entries; the position moves on from step to step, so that all are reached eventually."""
        cursors: dict[tuple[str, str], int] = self.__dict__.setdefault("_cursors", {})
        name, seen = self.keys.of(queue)[key], 0
        at = kind, name
        while seen < limit:
            reply, flat = self.transport.command(_scan(key), name, cursors.get(at, 0), "COUNT", limit)
            cursors[at] = int(reply)
            for i in range(0, len(flat), 2):
                seen += 1
                yield flat[i], flat[i + 1]
            if cursors[at] == 0:
                return

    def _next_of(self, queue: str, kind: str, key: str, limit: int) -> list[bytes]:
        return [member for member, _ in self._next(queue, kind, key, limit)]

    def let_in(self, queue: str, limits: str, after: bytes = b"") -> bytes:
        """Let in jobs that are blocked and for whose limit there is room, some hundred in a call.  `limits` as for
        `claim`, but of all types that this process knows: for others, the limit in the record counts.  A call looks
        at some keys: returns where the next one continues, b"" after the last key."""
        heads, following = self._heads(queue, after, BLOCKED_KEYS)
        self._repair(queue, "waiters", heads, limits=limits)
        return following

    def _first_waiters(self, queue: str, limit: int) -> list[bytes]:
        """Return the first member of each of the next keys in `blocked`; after the last key, start again."""
        reached: dict[str, bytes] = self.__dict__.setdefault("_reached", {})
        heads, reached[queue] = self._heads(queue, reached.get(queue, b""), min(limit, BLOCKED_KEYS))
        return heads

    def _heads(self, queue: str, after: bytes, limit: int) -> tuple[list[bytes], bytes]:
        """Return the first member of each of the next keys, and where to continue; b"" after the last key."""
        name, out = self.keys.of(queue)["blocked"], list[bytes]()
        for _ in range(limit):
            head = self.transport.command("ZRANGEBYLEX", name, after or "-", "+", "LIMIT", 0, 1)
            if not head:
                return out, b""
            out.append(head[0])
            after = b"(" + head[0].partition(b"\0")[0] + b"\1"
        return out, after


def _scan(key: str) -> str:
    return "HSCAN" if QUEUE_KEYS[key] == "hash" else "ZSCAN"


def _balanced(size: dict[str, int]) -> bool:
    return size["jobs"] == sum(size[place] for place in SIZES if place != "jobs")
