"""A key of another type stops a claim before it has taken a job out: what never ran is not given up for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from django_jobs.core.values import PLAIN, Attempt, Claim, Completed, Controls, Ended, Job, Lane, NewJob, State
from django_jobs.exceptions import StoreCorrupt
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from tests.support.faults.dumps import difference, dump
from tests.support.fsck import fsck
from tests.survival.conftest import Clock

pytestmark = pytest.mark.redis

QUEUE = "broken"
LEASE = 2_000
FAILED = Attempt(1, "failed", 0, 12, "w", "ValueError", "no")
ONCE = Controls(at_most_once=True, unique="u" * 64, unique_mode="queued", limit_key="one", limit=1)
Prepare = Callable[[Store, Clock], None]


def put(store: Store, clock: Clock, id: str, controls: Controls = ONCE, name: str = "work", wait: int = 0) -> None:
    record = encode(Job(id, QUEUE, name, b"[[],{}]", clock(), controls=controls))
    run_at = clock() + wait if wait else 0
    store.enqueue(QUEUE, [NewJob(id, record, controls, run_at)])


def claim(store: Store, limit: int = 10) -> list[Claim]:
    """What there is in both lanes, as far as it can be had."""
    claims: list[Claim] = []
    for lane in reversed(Lane):
        with suppress(StoreCorrupt):
            claims += store.claim(QUEUE, "worker", limit, lane=lane, lease=LEASE).claims
    return claims


def complete(store: Store, claims: list[Claim]) -> None:
    done = [Completed(each, controls=decode(each.id, QUEUE, each.record).controls) for each in claims]
    assert store.complete(QUEUE, done) == []


def queued(store: Store, clock: Clock) -> None:
    put(store, clock, "once")


def due(store: Store, clock: Clock) -> None:
    put(store, clock, "once", wait=500)
    clock.now += 600


def behind_an_expired_one(store: Store, clock: Clock) -> None:
    limited = Controls(priority=5, alone=True, expires_at=clock() + 10, limit_key="one", limit=1)
    put(store, clock, "expired", limited)
    put(store, clock, "once")
    clock.now += 600


def beside_plain_ones(store: Store, clock: Clock) -> None:
    """What is taken before the broken key is met must not be lost either."""
    blocked = Controls(priority=5, alone=True, limit_key="one", limit=1)
    put(store, clock, "first", blocked)
    put(store, clock, "second", blocked)
    put(store, clock, "once", Controls(at_most_once=True))
    put(store, clock, "locked", Controls(at_most_once=True, unique="l" * 64, unique_mode="queued"))


def blocked_by_a_pause_that_is_over(store: Store, clock: Clock) -> None:
    put(store, clock, "once")
    store.pause(QUEUE, name="work", until=clock() + 500)
    assert claim(store) == []
    assert store.get(QUEUE, "once").state is State.BLOCKED  # type: ignore[union-attr]
    clock.now += 600


#: How the jobs stand, and the keys that say so: of those nothing else could tell.
SCENES: list[tuple[Prepare, set[str]]] = [
    (queued, {"alone"}),
    (due, {"scheduled"}),
    (behind_an_expired_one, {"alone"}),
    (beside_plain_ones, {"alone"}),
    (blocked_by_a_pause_that_is_over, set()),
]


@pytest.mark.parametrize(("prepare", "known_by"), SCENES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_job_that_may_run_once_runs_once_whichever_key_is_broken(
    law_store: Store, virtual: Clock, prepare: Prepare, known_by: set[str]
) -> None:
    raw, names = law_store.transport.client, law_store.keys.of(QUEUE)
    for key in sorted(QUEUE_KEYS.keys() - known_by - {"jobs"}):
        raw.flushall()
        prepare(law_store, virtual)
        waiting = {id.decode() for id in raw.hkeys(names["jobs"])} - {"expired"}
        raw.delete(names[key])
        raw.execute_command("SET" if QUEUE_KEYS[key] == "list" else "RPUSH", names[key], "junk")
        held = [each for limit in (3, 3, 1) for each in claim(law_store, limit)]
        for _ in range(4):
            law_store.reconcile(QUEUE)
        ran = [each.id for each in held]
        complete(law_store, held)
        while claims := claim(law_store):
            ran += [each.id for each in claims]
            complete(law_store, claims)
        assert Counter(ran) == dict.fromkeys(waiting, 1), key
        assert raw.zcard(names["dead"]) == 0, key
        assert fsck(law_store, QUEUE) == [], key


@pytest.mark.parametrize("key", ["claims", "unique", "slots", "tries", "leases"])
def test_a_claim_that_meets_a_broken_key_leaves_the_job_where_it_was(
    law_store: Store, virtual: Clock, key: str
) -> None:
    raw, names = law_store.transport.client, law_store.keys.of(QUEUE)
    put(law_store, virtual, "once")
    before = raw.zrange(names["alone"], 0, -1, withscores=True)
    raw.delete(names[key])
    raw.set(names[key], "junk")
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            law_store.claim(QUEUE, "worker", 10, lane=Lane.ALONE, lease=LEASE)
    assert raw.zrange(names["alone"], 0, -1, withscores=True) == before
    assert fsck(law_store, QUEUE) == [f"{key} is a string, not a {QUEUE_KEYS[key]}"]


@pytest.mark.parametrize(("key", "wait"), [("alone", 0), ("scheduled", 500), ("unique", 0)])
def test_an_enqueue_that_meets_a_broken_key_leaves_nothing(
    law_store: Store, virtual: Clock, key: str, wait: int
) -> None:
    """Its caller is told of an error and may send it again; half a job would be given up meanwhile."""
    raw, names = law_store.transport.client, law_store.keys.of(QUEUE)
    raw.set(names[key], "junk")
    with pytest.raises(StoreCorrupt):
        put(law_store, virtual, "once", wait=wait)
    assert raw.exists(names["jobs"]) == 0
    for _ in range(2):
        law_store.reconcile(QUEUE)
    put(law_store, virtual, "once", wait=wait)
    virtual.now += wait + 1
    assert [each.id for each in claim(law_store)] == ["once"]


def test_a_broken_key_that_no_job_needs_stops_nobody(law_store: Store, virtual: Clock) -> None:
    put(law_store, virtual, "plain", PLAIN)
    law_store.transport.client.set(law_store.keys.of(QUEUE)["unique"], "junk")
    assert [each.id for each in claim(law_store)] == ["plain"]


@pytest.mark.parametrize("key", sorted(QUEUE_KEYS.keys() - {"claims", "jobs", "results"}))
def test_a_job_that_has_succeeded_is_not_run_again_whichever_key_is_broken(
    law_store: Store, virtual: Clock, key: str
) -> None:
    """Neither those that end while the key is broken, nor those that ended before.  Only three keys tell it."""
    raw, name = law_store.transport.client, law_store.keys.of(QUEUE)[key]
    shapes = [
        PLAIN,
        Controls(unique="u" * 64, unique_mode="running", limit_key="one", limit=2, expires_at=virtual() + 9_000),
        Controls(limit_key="one", limit=2, priority=3),
    ]
    for n, controls in enumerate(shapes * 2):
        put(law_store, virtual, f"job-{n}", replace(controls, unique=controls.unique and f"{n}" * 64))
    earlier = claim(law_store, 1)
    complete(law_store, earlier)
    held = claim(law_store)
    law_store.checkin(held[0], b'{"message":"half"}')
    law_store.watch_ends(QUEUE, [held[1].id])
    raw.delete(name)
    raw.execute_command("SET" if QUEUE_KEYS[key] == "list" else "RPUSH", name, "junk")
    done = [Completed(each, controls=decode(each.id, QUEUE, each.record).controls) for each in held]
    with suppress(StoreCorrupt):
        law_store.complete(QUEUE, done)
    for _ in range(5):
        law_store.reconcile(QUEUE)
    law_store.complete(QUEUE, done)  # again, if it was refused
    ended = {each.id for each in earlier + held}
    rest = {f"job-{n}" for n in range(6)} - ended
    assert {each.id for _ in range(3) for each in claim(law_store)} == rest
    assert {law_store.get(QUEUE, id).state for id in ended} == {State.SUCCEEDED}  # type: ignore[union-attr]


def settled(store: Store, claims: list[Claim]) -> list[State | None]:
    """End them in one call, each in another way."""
    verbs = ("retry", "snooze", "park", "bury", "discard", "retry")
    lines = {"retry", "bury", "discard"}
    return store.settle(
        QUEUE,
        [
            Ended(claim, verb, FAILED if verb in lines else None, 500, "old")
            for claim, verb in zip(claims, verbs, strict=True)
        ],
    )


STATES = [State.RETRY, State.SCHEDULED, State.BLOCKED, State.DEAD, State.CANCELLED, State.CANCELLED]


@pytest.mark.parametrize("key", sorted(QUEUE_KEYS))
def test_a_key_of_another_type_keeps_all_jobs_of_a_batch_or_none_from_ending(
    law_store: Store, virtual: Clock, key: str
) -> None:
    """What is settled for one job and not for another would be lost, or would come twice."""
    store = law_store
    client, name = store.transport.client, store.keys.of(QUEUE)[key]
    shapes = [
        Controls(unique=f"{n}" * 64, unique_mode="running", limit_key="one", limit=6, expires_at=virtual() + 9_000)
        for n in range(8)
    ]
    for n, shape in enumerate(shapes):
        put(store, virtual, f"job-{n}", shape)
    claims = claim(store)
    assert len(claims) == 6, "two are blocked"
    store.cancel(QUEUE, [claims[5].id])
    store.watch_ends(QUEUE, [claims[3].id])
    was = client.dump(name)
    client.delete(name)
    client.set(name, "foreign") if QUEUE_KEYS[key] != "string" else client.rpush(name, "foreign")
    before = dump(client)
    try:
        answer = settled(store, claims)
    except StoreCorrupt:
        assert not difference(before, dump(client)), "some were settled, or something of them"
        client.delete(name)
        if was:
            client.restore(name, 0, was)
        answer = settled(store, claims)
    assert answer == STATES
    assert settled(store, claims) == [None] * 6
    if client.type(name).decode() != QUEUE_KEYS[key]:
        client.delete(name)  # it kept nobody from ending, and would keep us from looking
    assert [store.get(QUEUE, claim.id).state for claim in claims] == STATES  # type: ignore[union-attr]
