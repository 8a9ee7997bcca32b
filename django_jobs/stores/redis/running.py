"""How jobs are claimed, one short method per script."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Any

from django_jobs.core.values import Claim, Claimed, Completion, Killed, Lane
from django_jobs.exceptions import StoreError
from django_jobs.serialization.checked import read_number
from django_jobs.stores.redis.adding import Adding
from django_jobs.stores.redis.connection.entries import (
    claim_from,
    is_suspect,
    read_claim,
    read_expired,
    read_holdings,
    texts,
    waits_to_begin,
)
from django_jobs.stores.redis.connection.keys import FLEET
from django_jobs.stores.redis.connection.part import Name
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.redis.connection.transport import Call
from django_jobs.stores.redis.settling import call_of_complete
from django_jobs.stores.values.answers import Renewal
from django_jobs.stores.values.sizes import MAX_BATCH


class Running(Adding):
    """How jobs are claimed, and how their holders keep the claims."""

    def claim(
        self,
        queue: str,
        worker: str,
        limit: int,
        *,
        lane: Lane = Lane.SHARED,
        lease: int,
        max_running: int = 0,
        lease_each: bool = False,
        up_to: int | None = None,
        knows: str = "",
        names: Collection[str] = (),
        rank: int = 0,
        request: str = "",
        limits: str = "",
        completion: Completion | None = None,
    ) -> Claimed:
        """queued → running: up to `limit` jobs, best priority first, oldest first within a priority; fewer if their
        records together reach MAX_BYTES.

        Due scheduled and retry jobs are promoted first (at most 100).  Returns no jobs while the queue is paused.
        `max_running` bounds the running jobs of the whole queue.  A job over its own limit, or of a paused type, goes
        to blocked and is passed over; an expired one goes to expired and is reported.  The lane `alone` gives its
        suspects first (see recover); the claim of a suspect whose next crash would be its last `has_to_wait` (see
        begin), except with `lease_each`.  The lane `clear` is `alone` without suspects.  From both, an at-most-once job
        and a job that crashed are claimed one by one, except with `lease_each`: if the process dies, each of its jobs
        may have started, and any of them may have been the reason.  `worker` holds one lease of
        `lease` ms from now for all its claims in the queue; with `lease_each`, each job has its own holder
        `{worker}:{job id}` (remote workers).  Unique locks of mode "queued" are freed.  If jobs are left, another
        waiting worker is woken.

        With `up_to` (see `last_arrival`), only jobs that had arrived by then are claimed and counted in `left` (which
        may stop counting at a thousand).  A job that a worker handed back, or held when it was lost, counts as having
        arrived.

        `knows` is a digest of the names and formats that this worker knows (registry.digest).  If `park` has recorded
        that workers of that digest do not know a job's name, the job goes to blocked and is passed over; parked jobs
        that this worker may know come back first.  With "", the worker takes jobs of any name, but no parked ones.

        With `names`, only jobs of these names are taken, wherever they stand in the lane; the others stay where they
        are, and none of their expiries or limits are looked at.  A call looks at some hundred jobs, from `rank` on;
        Claimed.rank is where the next call continues.

        `request` is an id of the caller's for this call: if a claim with it has returned jobs in the last quarter of an
        hour, those of them that are still held are returned again, with a new lease, and no others are taken.

        `limits` says how many jobs of each type may run at once under one limit key (registry.limits); "" = as many as
        their records say.  If that leaves room while jobs of the key are blocked, those that are blocked go first.

        `completion`: first do `complete` for these attempts, in the same round trip if both queues are on one server.
        Its answer is set as `completion.stale`, whether the claim returns or raises.  It stays None if `complete` was
        refused or not answered: call `complete` then, which repeats the call if it may have been carried out."""
        each, bound = "each" if lease_each else "", "" if up_to is None else up_to
        most = self.options.max_crashes
        bounds = min(limit, MAX_BATCH), lease, lane.value, max_running
        # A claim that was not answered may have been carried out: the worker's next claim repeats it.
        chosen = "\n".join(names), rank, request, limits
        usual = lane is Lane.SHARED and not (max_running or lease_each or up_to is not None or names or request)
        args = worker, *bounds, each, self._archiving, bound, knows, most, *chosen
        now, left, due, token, expired, ids, records, tried, others, at, waits_began, following = self._claim_once(
            queue, args, lambda: ("claim", queue, worker, lane is Lane.SHARED, request), completion, usual=usual
        )
        claims: list[Claim] = []
        if not (tried or waits_began or lease_each):  # most of the time: their first attempt, at once
            pairs, ids = zip(texts(ids), records, strict=True), ()
            claims = [Claim(id, queue, token, record or b"", claimed_at=at, worker=worker) for id, record in pairs]
        columns = ids, records, tried or repeat(None), waits_began or repeat(None)
        for bare_id, record, tries, began in zip(*columns, strict=False):
            id = bare_id.decode(errors="replace")
            holder = f"{worker}:{id}" if lease_each else worker
            suspect = bool(tries) and is_suspect(tries)
            known = at, holder, suspect, -read_number(began) if began else 0
            has_to_wait = suspect and not lease_each and waits_to_begin(tries)
            claims.append(claim_from(id, queue, token, record, tries, *known, has_to_wait=has_to_wait))
        due = None if due < 0 else due
        return Claimed(claims, read_expired(expired), left, due, now, bool(others), max(following, 0))

    def _claim_once(
        self, queue: str, args: Sequence[Argument], name: Name, completion: Completion | None, *, usual: bool
    ) -> Sequence[Any]:
        """Run lua/claiming/claim.lua, after lua/ending/complete.lua if there is a completion; return its answer."""
        if completion is not None:
            complete, _ = call_of_complete(completion.queue, completion.done, self.options.history, self._archiving)
            ended, claimed = self._run_each([complete, ("claim", queue, args, name)])
            if not isinstance(ended, StoreError):
                completion.stale = texts(ended)
            if isinstance(claimed, StoreError):
                raise claimed
            return claimed  # type: ignore[no-any-return]
        answer: Sequence[Any] = (self._run_shortly if usual else self._run)("claim", queue, *args, call=name)
        if len(answer) > 4 and isinstance(answer[4], list):
            return answer
        now, left, due, token, *jobs = answer  # of the short form
        return now, left, due, token, (), jobs[::2], jobs[1::2], (), 0, now, (), -1

    def renew(
        self, queues: Sequence[str], workers: Sequence[str], lease: int
    ) -> Mapping[str, Mapping[str, Renewal] | StoreError]:
        """Renew the leases of these workers in these queues for `lease` ms: the heartbeat of a worker.  One round trip;
        on a Cluster, one for each queue.

        Returns queue → holder → Renewal, for each worker that still had a lease (even if none of its jobs was asked to
        stop); a worker that is missing holds nothing in this queue any more.  An id that is `Killed` is returned by
        every call until that attempt has ended: until it is settled (which is refused), or its holder is recovered or
        released or has no lease.  For a queue that cannot be read, the value is the error; the others are renewed.
        Raises StoreUnavailable; any of the queues may then have been renewed."""
        channel = self._channels.begin(FLEET)  # of all these calls: each queue keeps its number
        args: tuple[Argument, ...] = (self._clock(), *channel.key, lease, *workers)
        calls: list[Call] = [(*self._script("extend", queue), args) for queue in queues]
        try:
            replies = self.transport.run_together(calls)
        except BaseException as error:
            self._not_answered(channel, None, error)
            raise
        self._channels.answered(channel)
        return {
            queue: reply if isinstance(reply, StoreError) else _renewals(reply)
            for queue, reply in zip(queues, replies, strict=True)
        }

    def extend(self, queue: str, workers: Sequence[str], lease: int) -> Mapping[str, Sequence[str]]:
        """Do `renew` in one queue.  Returns holder → ids of its jobs that were asked to stop.  Raises StoreError."""
        renewed = self.renew([queue], workers, lease)[queue] if workers else {}
        if isinstance(renewed, StoreError):
            raise renewed
        return {worker: renewal.asked for worker, renewal in renewed.items()}

    #: the number of queues that one call of `renew` handles in a bounded time.
    renewed_at_once = 100

    def is_replicated(self, claim: Claim, replicas: int, timeout: int) -> bool:
        """Tell whether the claim is held and has reached `replicas` replicas of the server within `timeout`
        ms."""
        # WAIT covers only what this connection has written or read: the claim may have come over another, broken one.
        key = self.keys.of(claim.queue)["claims"]
        commands: list[tuple[Argument, ...]] = [("HGET", key, claim.id), ("WAIT", replicas, timeout)]
        held, reached = self.transport.on_one_connection(key, commands)
        return read_claim(held)[:2] == (claim.token, claim.claimed_at) and int(reached) >= replicas

    def holdings(self, queue: str, worker: str) -> list[Claim]:
        """Return all claims of this holder.

        This may cost as much as reading all running jobs, so call it only if `renew` reports claims that the holder
        does not know, or lacks claims that it has."""
        flat = self._run("holdings", queue, worker)
        out = []
        for id, text, record, tries, began in zip(*(flat[i::5] for i in range(5)), strict=True):
            token, claimed_at, holder = read_claim(text)
            known = claimed_at, holder, is_suspect(tries), -read_number(began)
            out.append(claim_from(id.decode(errors="replace"), queue, token, record, tries, *known))
        return out

    def abandon(self) -> None:
        """Drop the sockets in a copy of the process that a job has made, without sending anything or taking a lock."""
        self.transport.abandon()

    def close(self) -> None:
        """Close this process's connections; the next call opens new ones."""
        self.transport.close()


def _asked(text: str) -> str:
    id, _, token = text.partition("\0")
    return Killed(id, int(token)) if token else id


def _renewals(flat: Sequence[Any]) -> dict[str, Renewal]:
    """Read the answer of lua/claiming/extend.lua."""
    return {
        flat[i].decode(): Renewal([_asked(text) for text in texts(flat[i + 1])], dict(read_holdings(flat[i + 2])))
        for i in range(0, len(flat), 3)
    }
