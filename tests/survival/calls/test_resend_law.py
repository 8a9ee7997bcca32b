"""Every call may be sent twice: the second has no effect and gives the same answer.  A stale token changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from django_jobs.core.values import Claim, Completed, Job, NewJob
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection import scripts
from django_jobs.stores.redis.connection.transport import Call, Transport
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.faults.dumps import difference, dump
from tests.support.faults.walking import FAILED, QUEUE, Walk
from tests.support.fsck import Snapshot, fsck
from tests.survival.conftest import Clock

SEEDS = range(dose(5, long=60))
STEPS = 250
#: Upkeep answers with the work it found: nothing is left for the second call, and nobody acts on the number.
COUNTS_ITS_WORK = {"promote", "prune", "repair", "workflows_due"}


class Twice:
    """Wraps a transport: each script runs twice with the very same arguments, and must not notice."""

    def __init__(self, inner: Transport, server: RedisServer) -> None:
        self.inner, self.client = inner, server.client()
        self.seen: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def run(self, script: scripts.Script, keys: list[str], args: tuple[object, ...]) -> Any:
        first = self.inner.run(script, keys, args)
        once = dump(self.client)
        second = self.inner.run(script, keys, args)
        if second == scripts.UNUSUAL != first:  # the short form leaves it to the full one, as in part.py
            full, prefix = scripts.load(script.name), keys[0].removesuffix(script.keys[0])
            second = self.inner.run(full, [prefix + key for key in full.keys], args)
        changed = difference(once, dump(self.client))
        self.seen[script.name] += 1
        assert not changed, f"{script.name}{args!r} sent twice changed {changed!r}"
        if script.name == "workflow_end":  # tells again what was started, also by earlier calls: nothing starts twice
            for one, other in zip(first, second, strict=True):
                assert (one[:2], set(one[2][::3]) <= set(other[2][::3])) == (other[:2], True), (args, first, second)
        elif script.name not in COUNTS_ITS_WORK:
            assert first == second, f"{script.name}{args!r} answered {first!r}, then {second!r}"
        return first

    def run_together(self, calls: list[Call]) -> list[object]:
        return [self.run(script, list(keys), tuple(args)) for script, keys, args in calls]


@pytest.mark.redis
@pytest.mark.accepts("K06")
def test_sent_twice_every_script_answers_the_same_and_leaves_the_same(
    law_store: Store, virtual: Clock, quiet_server: RedisServer
) -> None:
    twice = Twice(law_store.transport, quiet_server)
    law_store.transport = twice
    for seed in SEEDS:
        twice.client.flushall()
        walk = Walk(law_store, virtual, seed)
        for _ in range(STEPS):
            walk.step()
    assert set(scripts.names()) == set(twice.seen), "the walk has not reached every script"
    twice.client.close()


@pytest.mark.redis
def test_a_claim_of_a_paused_queue_that_is_sent_twice_finds_no_jobs_twice(
    law_store: Store, virtual: Clock, quiet_server: RedisServer
) -> None:
    law_store.enqueue(QUEUE, [NewJob("a", encode(Job("a", QUEUE, "shop.one", b"[[],{}]", virtual())))])
    law_store.pause(QUEUE, until=virtual() + 60_000)
    law_store.transport = Twice(law_store.transport, quiet_server)
    claimed = law_store.claim(QUEUE, "alpha", 3, lease=1000)
    assert (claimed.claims, claimed.left, claimed.next_due) == ([], 0, 60_000)


@pytest.mark.redis
@pytest.mark.accepts("K02", "R15", "O15")
def test_every_state_a_random_walk_reaches_is_sound(law_store: Store, virtual: Clock) -> None:
    for seed in SEEDS:
        law_store.transport.client.flushall()
        walk = Walk(law_store, virtual, seed)
        for step in range(STEPS):
            walk.step()
            snapshot = Snapshot(law_store, QUEUE)
            problems = [*snapshot.problems(), *snapshot.holdings()]
            if step % 10 == 9:  # it also looks for keys of a wrong type or name, which would stay
                problems += fsck(law_store, QUEUE)
            assert not problems, f"seed {seed}, after {walk.log[-8:]}: {problems[:5]}"
            assert law_store.faults(QUEUE) == ({}, True), f"seed {seed}, after {walk.log[-8:]}"


def settle_in_every_way(store: Store, claim: Claim) -> dict[str, object]:
    """Each call that ends or extends an attempt, with this claim."""
    return {
        "complete": store.complete(QUEUE, [Completed(claim, b"1")]) == [claim.id],
        "retry": store.retry(claim, FAILED, 10) is None,
        "snooze": not store.snooze(claim, 10),
        "park": not store.park(claim, "digest"),
        "bury": not store.bury(claim, FAILED),
        "discard": not store.discard(claim, FAILED),
        "release": store.release(QUEUE, [claim]) == [claim.id],
        "transfer": not store.transfer(claim, "thief", 9_999),
        "begin": not store.begin(claim),
        "checkin": not store.checkin(claim, b'{"message":"late"}'),
    }


@pytest.mark.redis
@pytest.mark.accepts("R13", "R04")
def test_a_stale_token_changes_no_byte(law_store: Store, virtual: Clock) -> None:
    refused = 0
    for seed in SEEDS:
        law_store.transport.client.flushall()
        walk = Walk(law_store, virtual, seed)
        for _ in range(STEPS):
            walk.step()
            live = {(c.id, c.token) for c in walk.held}
            before = dump(law_store.transport.client)
            for claim in [c for c in walk.past[-3:] if (c.id, c.token) not in live]:
                stored = law_store.get(QUEUE, claim.id)
                if stored is not None and stored.token == claim.token:
                    continue  # a transferred claim keeps its token
                answers = settle_in_every_way(law_store, claim)
                assert all(answers.values()), f"seed {seed}: {claim} was accepted: {answers}"
                refused += 1
            changed = difference(before, dump(law_store.transport.client))
            assert not changed, f"seed {seed}: stale claims changed {changed}"
    assert refused > 50


def kept(record: bytes) -> tuple[object, ...]:
    """What stays whatever arguments replace those of the record."""
    _, name, options, line, at, meta, _ = record.split(b"\n", 6)
    controls = json.loads(line or b"{}").items()
    changing = {"limit_key", "limit", "expires_at", "asked_at"}
    return name, options, tuple(sorted((k, v) for k, v in controls if k not in changing)), at, meta


@pytest.mark.redis
def test_no_script_rewrites_a_payload(law_store: Store, virtual: Clock) -> None:
    """Replaced arguments are the bytes the caller sent; beside them only their time, limit and expiry change."""
    for seed in SEEDS:
        law_store.transport.client.flushall()
        walk = Walk(law_store, virtual, seed)
        for _ in range(STEPS):
            walk.step()
        arguments = {record.split(b"\n", 6)[6] for record in walk.sent}
        heads = {kept(record) for record in walk.sent}
        for id, record in law_store.transport.client.hgetall(law_store.keys.of(QUEUE)["jobs"]).items():
            assert kept(record) in heads, (seed, id, record)
            assert record.split(b"\n", 6)[6] in arguments, (seed, id, record)
