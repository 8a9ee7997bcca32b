"""RedisStore: how jobs are claimed, one short method per script."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

from django_jobs.core.values import Claim, Claimed, Completion, Expired, Killed, Lane
from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.contract.fetching import LONGEST_WAIT, FetchingStore, Outlook
from django_jobs.stores.contract.running import MAX_BATCH, Renewal, RunningStore
from django_jobs.stores.redis.adding import RedisAdding
from django_jobs.stores.redis.connection.entries import (
    is_suspect,
    read_claim,
    read_holdings,
    read_number,
    read_tries,
    texts,
    waits_to_begin,
)
from django_jobs.stores.redis.connection.errors import StoreLate
from django_jobs.stores.redis.connection.part import LOOKED_INTO_AT_ONCE, Name, OneCall
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.redis.connection.transport import Call
from django_jobs.stores.redis.settling import call_of_complete

#: So many jobs more than HISTORY says may be kept while jobs run one after the other: they are deleted together.
MOST_OVER = 20


class RedisRunning(RedisAdding, RunningStore, FetchingStore):
    """See stores/contract/running.py and fetching.py for the contract of each method."""

    #: for how many calls it is not tried to end a job and claim the next by one script; for how many it may leave
    #: `succeeded` as long as it is.
    _not_in_one = _not_cut = 0

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
        completion: Completion | None = None,
    ) -> Claimed:
        each, bound = "each" if lease_each else "", "" if up_to is None else up_to
        most = self.options.max_crashes
        limits = min(limit, MAX_BATCH), lease, lane.value, max_running
        # A claim that was not answered may have been carried out: the worker's next claim repeats it.
        chosen = "\n".join(names), rank, request
        args = worker, *limits, each, self._archiving, bound, knows, most, *chosen
        now, left, due, token, expired, ids, records, tried, others, at, waits_began, following = self._claim_once(
            queue, args, lambda: ("claim", queue, worker, lane is Lane.SHARED, request), completion
        )
        claims: list[Claim] = []
        if not (tried or waits_began or lease_each):  # most of the time: their first attempt, at once
            pairs, ids = zip(texts(ids), records, strict=True), ()
            claims = [Claim(id, queue, token, record or b"", claimed_at=at, worker=worker) for id, record in pairs]
        columns = ids, records, tried or repeat(None), waits_began or repeat(None)
        for bare_id, record, tries, began in zip(*columns, strict=False):
            id = bare_id.decode(errors="replace")
            failures, crashes, parked = read_tries(tries) if tries else (0, 0, 0)
            holder = f"{worker}:{id}" if lease_each else worker
            suspect = crashes > 0 and is_suspect(tries)
            known = failures, crashes, parked, at, holder, suspect, -read_number(began) if began else 0
            has_to_wait = suspect and not lease_each and waits_to_begin(tries)
            claims.append(Claim(id, queue, token, record or b"", *known, has_to_wait=has_to_wait))
        gone = [
            Expired(expired[i].decode(errors="replace"), expired[i + 1], read_number(expired[i + 2]))
            for i in range(0, len(expired), 3)
        ]
        return Claimed(claims, gone, left, None if due < 0 else due, now, bool(others), max(following, 0))

    def _claim_once(
        self, queue: str, args: Sequence[Argument], name: Name, completion: Completion | None
    ) -> Sequence[Any]:
        """Run lua/claim.lua, after lua/complete.lua if there is a completion; return its answer."""
        if completion is not None:
            complete = call_of_complete(completion.queue, completion.done, self.options.history, self._archiving)
            in_one = partial(self._in_one, complete, queue, args) if self._may_be_one(completion, queue, args) else None
            ended, claimed = self._run_each_once([complete, ("claim", queue, args, name)], in_one)
            if not isinstance(ended, StoreError):
                completion.stale = texts(ended)
            if not isinstance(claimed, StoreError):
                return claimed  # type: ignore[no-any-return]
            if not isinstance(claimed, StoreLate):
                raise claimed
        return self._run_once("claim", queue, *args, call=name)  # type: ignore[no-any-return]

    def _may_be_one(self, completion: Completion, queue: str, args: Sequence[Argument]) -> bool:
        """May lua/complete_and_claim.lua do both?  The script looks itself for what only the store knows."""
        _, _, _, lane, most_running, each, archiving, up_to, _, _, names, _, request = args
        if lane == Lane.SHARED or most_running or each or archiving or up_to != "" or names or request:
            return False
        if completion.queue != queue and not self.transport.spans:
            return False
        if self.options.history < MOST_OVER or not _ended_one_simple_job(completion):
            return False
        self._not_in_one -= 1
        return self._not_in_one < 0

    def _in_one(
        self, complete: OneCall, queue: str, args: Sequence[Argument], channels: Sequence[tuple[str, str]]
    ) -> list[Any] | None:
        """Run lua/complete_and_claim.lua: end one job and claim the next, if nothing else is to be done."""
        _, ended_in, (_, _, run_ms, wait_ms, times, id, what, result, *_), _ = complete
        worker, _, lease, lane, *_ = args
        script, keys = self._script("complete_and_claim", ended_in)
        before = 0 if queue == ended_in else len(keys)
        if before:
            keys = keys + self._script("complete_and_claim", queue)[1]
        most = 2**53 if self._not_cut > 0 else self.options.history + MOST_OVER
        token, _, name = str(what).split("\n")
        ended = most, id, token, name, result, run_ms, wait_ms, times
        following = worker, lease, "0" if lane == Lane.CLEAR else "-inf", before
        try:
            answer = self.transport.run(script, keys, (self._clock(), *chain(*channels), *ended, *following))
        except StoreUnavailable:
            raise
        except StoreError:  # one of the two scripts meets it, too, and the other has its effect
            return None
        self._not_cut -= 1
        if isinstance(answer, int):
            self._not_in_one = answer
            if answer == 0:  # lua/complete.lua cuts `succeeded`; what it leaves stays for a minute
                self._not_cut = MOST_OVER
            return None
        return [[], answer]

    def renew(
        self, queues: Sequence[str], workers: Sequence[str], lease: int
    ) -> Mapping[str, Mapping[str, Renewal] | StoreError]:
        args: tuple[Argument, ...] = (self._clock(), lease, *workers)
        calls: list[Call] = [(*self._script("extend", queue), args) for queue in queues]
        replies = self.transport.run_together(calls)
        return {
            queue: reply if isinstance(reply, StoreError) else _renewals(reply)
            for queue, reply in zip(queues, replies, strict=True)
        }

    def is_replicated(self, claim: Claim, replicas: int, timeout: int) -> bool:
        # WAIT covers only what this connection has written or read: the claim may have come over another, broken one.
        key = self.keys.of(claim.queue)["claims"]
        commands: list[tuple[Argument, ...]] = [("HGET", key, claim.id), ("WAIT", replicas, timeout)]
        held, reached = self.transport.on_one_connection(key, commands)
        return read_claim(held)[:2] == (claim.token, claim.claimed_at) and int(reached) >= replicas

    def holdings(self, queue: str, worker: str) -> list[Claim]:
        flat = self._run("holdings", queue, worker)
        out = []
        for id, text, record, tries, began in zip(*(flat[i::5] for i in range(5)), strict=True):
            token, claimed_at, holder = read_claim(text)
            known = *read_tries(tries), claimed_at, holder, is_suspect(tries), -read_number(began)
            out.append(Claim(id.decode(errors="replace"), queue, token, record, *known))
        return out

    def promote(self, queue: str, limit: int = 100) -> int:
        return int(self._run("promote", queue, min(limit, 100)))

    def last_arrival(self, queue: str) -> int:
        while self.promote(queue):
            pass
        return read_number(self.transport.command("GET", self.keys.of(queue)["seq"]) or b"0")

    def waiting(self, queue: str, up_to: int) -> int:
        return int(self._run("waiting", queue, up_to))

    def wait_for_work(
        self,
        queues: Sequence[str],
        timeout: float,
        *,
        lane: Lane | None = Lane.SHARED,
        passed_over: Collection[str] = (),
    ) -> str | None:
        timeout = max(0.01, min(timeout, LONGEST_WAIT))
        keys: dict[bytes, str] = {}
        for end in ("", "_alone") if lane is None else ("",) if lane is Lane.SHARED else ("_alone",):
            keys |= {self.keys.of(queue)[f"wake{end}"].encode(): queue for queue in queues}
            keys |= {self.keys.of(queue)[f"offer{end}"].encode(): queue for queue in queues if queue not in passed_over}
        return self._wait(keys, timeout)

    def _wait(self, keys: dict[bytes, str], timeout: float) -> str | None:
        told = self.transport.blocking(timeout, "BLPOP", *keys, timeout, exact=timeout < LONGEST_WAIT)
        return None if told is None else keys[told[0]]

    def backlog(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, int]:
        name = "queued" if lane is Lane.SHARED else "alone"
        size = ("ZCOUNT", "0", "+inf") if lane is Lane.CLEAR else ("ZCARD",)
        sizes = self.transport.pipeline([(size[0], self.keys.of(queue)[name], *size[1:]) for queue in queues])
        return dict(zip(queues, sizes, strict=True))

    def outlook(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> dict[str, Outlook]:
        found = self._read_over("outlook", queues, lane.value, at_once=LOOKED_INTO_AT_ONCE, width=2)
        return {queue: Outlook(int(left), None if due < 0 else int(due)) for queue, (left, due) in found.items()}

    def wake(self, queues: Sequence[str], *, lane: Lane = Lane.SHARED) -> None:
        self._run_over("wake", queues, lane.value, at_once=LOOKED_INTO_AT_ONCE)

    def abandon(self) -> None:
        self.transport.abandon()

    def close(self) -> None:
        self.transport.close()


def _asked(text: str) -> str:
    id, _, token = text.partition("\0")
    return Killed(id, int(token)) if token else id


def _ended_one_simple_job(completion: Completion) -> bool:
    """Was it one job that never runs twice, and frees nothing but its claim when it ends?"""
    if len(completion.done) > 1:
        return False
    ((claim, _, _, _, controls, _),) = completion.done
    more = (
        controls.unique or controls.limit_key or controls.keep_result is not None or controls.workflow or claim.report
    )
    return controls.at_most_once and not more


def _renewals(flat: Sequence[Any]) -> dict[str, Renewal]:
    """Read the answer of lua/extend.lua."""
    return {
        flat[i].decode(): Renewal([_asked(text) for text in texts(flat[i + 1])], dict(read_holdings(flat[i + 2])))
        for i in range(0, len(flat), 3)
    }
