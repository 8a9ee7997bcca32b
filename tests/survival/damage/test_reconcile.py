"""A store damaged on purpose: the reconciler puts it right, loses nothing, and lets nothing run twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic

import pytest
import redis

from django_jobs.core.values import PLAIN, Completed, Controls, Job, Lane, NewJob
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store, reconciling
from django_jobs.stores.redis.connection.keys import QUEUE_KEYS
from django_jobs.stores.redis.reconciling import REPAIRED_AT_ONCE, STEP
from django_jobs.worker.maintenance.tasks import MaintenanceTasks
from tests.support.backends.servers import configured
from tests.support.dose import dose
from tests.support.faults.dumps import difference, dump
from tests.support.fsck import fsck
from tests.support.pace import Pace
from tests.survival.conftest import Clock

QUEUE = "damaged"
LEASE = 2_000
EACH = 100
MANY = dose(30_000, long=300_000)


def new_job(id: str, now: int, controls: Controls = PLAIN) -> NewJob:
    return NewJob(id, encode(Job(id, QUEUE, "shop.work", b"[[],{}]", now, controls=controls)), controls)


@pytest.fixture
def raw(law_store: Store) -> redis.Redis:
    return law_store.transport.client


class Damage:
    """Breaks things, a hundred of each kind, and knows which jobs must still be there afterwards."""

    def __init__(self, store: Store, raw: redis.Redis, now: int) -> None:
        self.store, self.raw, self.key, self.now = store, raw, store.keys.of(QUEUE), now
        self.accepted: set[str] = set()

    def add(self, kind: str, controls: Controls = PLAIN) -> list[str]:
        ids = [f"{kind}-{n}" for n in range(EACH)]
        self.store.enqueue(QUEUE, [new_job(id, self.now, controls) for id in ids])
        self.accepted |= set(ids)
        return ids

    def claim_without_lease(self) -> None:
        ids = self.add("orphan")
        claimed = self.store.claim(QUEUE, "ghost", EACH, lease=LEASE)
        assert len(claimed.claims) == len(ids)
        self.raw.zrem(self.key["leases"], "ghost")

    def lease_without_claim(self) -> None:
        self.raw.zadd(self.key["leases"], {f"nobody-{n}": self.now - 1 for n in range(EACH)})

    def job_without_place(self) -> None:
        self.raw.zrem(self.key["queued"], *self.add("lost"))

    def place_without_job(self) -> None:
        for place in ("queued", "scheduled", "dead"):
            self.raw.zadd(self.key[place], {f"phantom-{place}-{n}": 1 for n in range(EACH)})

    def lock_without_job(self) -> None:
        self.raw.hset(self.key["unique"], mapping={f"{n:064x}": f"0:gone-{n}" for n in range(EACH)})

    def slot_without_claim(self) -> None:
        self.raw.zadd(self.key["slots"], {f"limited\0gone-{n}": 0 for n in range(EACH)})

    def waiter_without_limit(self) -> None:
        ids = self.add("waiting", Controls(limit_key="stuck", limit=1))
        self.raw.zadd(self.key["slots"], {"stuck\0gone": 0})
        assert not self.store.claim(QUEUE, "ghost", EACH, lease=LEASE).claims
        self.raw.zrem(self.key["slots"], "stuck\0gone")
        assert self.raw.hlen(self.key["waits"]) == len(ids)

    def job_in_two_places(self) -> None:
        self.raw.zadd(self.key["scheduled"], dict.fromkeys(self.add("double"), self.now))

    def all(self) -> None:
        self.claim_without_lease()
        self.waiter_without_limit()
        self.lease_without_claim()
        self.job_without_place()
        self.place_without_job()
        self.lock_without_job()
        self.slot_without_claim()
        self.job_in_two_places()


def reconcile(store: Store, clock: Clock) -> Counter[str]:
    """What running workers do in a minute: a few rounds, and recovery."""
    repairs: Counter[str] = Counter()
    for _ in range(6):
        repairs.update(store.reconcile(QUEUE))
        clock.now += 10_000
        while len(store.recover(QUEUE)) == 100:
            continue
    return repairs


def drain(store: Store) -> Counter[str]:
    """Run everything; id → how often."""
    starts: Counter[str] = Counter()
    idle = 0
    while idle < 3:
        got = 0
        for lane in Lane:
            claims = store.claim(QUEUE, "healthy", 50, lane=lane, lease=LEASE).claims
            starts.update(claim.id for claim in claims)
            controls = {c.id: Controls(limit_key="stuck", limit=1) for c in claims if c.id.startswith("waiting")}
            assert not store.complete(QUEUE, [Completed(c, controls=controls.get(c.id, PLAIN)) for c in claims])
            got += len(claims)
        idle = 0 if got else idle + 1
    return starts


@pytest.mark.redis
@pytest.mark.accepts("R04", "R17", "R18", "G60", "P03")
def test_every_kind_of_damage_is_repaired_at_once(law_store: Store, raw: redis.Redis, virtual: Clock) -> None:
    damage = Damage(law_store, raw, virtual())
    damage.all()
    assert len(fsck(law_store, QUEUE)) >= 6 * EACH
    before = dump(raw)
    faults = law_store.faults(QUEUE)
    assert difference(before, dump(raw)) == {}, "who only looks changes nothing"
    assert {kind: len(which) for kind, which in faults.found.items()} == {
        "claim_without_lease": EACH,
        "lock_without_job": EACH,
        "slot_without_claim": EACH,
        "job_without_place": 2 * EACH,
        "place_without_job": 3 * EACH,
    }
    repairs = reconcile(law_store, virtual)
    assert fsck(law_store, QUEUE) == []
    assert law_store.faults(QUEUE) == ({}, True)
    for kind in ("lock_without_job", "slot_without_claim"):
        assert repairs[kind] >= EACH, repairs
    assert repairs["job_without_place"] >= 2 * EACH
    assert repairs["place_without_job"] >= 3 * EACH
    assert repairs["claim_without_lease"] >= 1
    assert repairs["waiter_without_limit"] >= 1
    starts = drain(law_store)
    assert set(starts) == damage.accepted, "every accepted job ran"
    assert set(starts.values()) == {1}, "none ran twice"
    assert fsck(law_store, QUEUE) == []


@pytest.mark.redis
def test_faults_that_cancel_each_other_out_are_found(law_store: Store, raw: redis.Redis, virtual: Clock) -> None:
    """As many lost jobs as phantoms: the sizes add up although nothing is right."""
    damage = Damage(law_store, raw, virtual())
    damage.job_without_place()
    raw.zadd(law_store.keys.of(QUEUE)["dead"], {f"phantom-{n}": virtual() for n in range(EACH)})
    reconcile(law_store, virtual)
    assert fsck(law_store, QUEUE) == []
    assert set(drain(law_store)) == damage.accepted


@pytest.mark.redis
@pytest.mark.accepts("R04")
def test_every_key_of_a_wrong_type_is_set_aside(law_store: Store, raw: redis.Redis, virtual: Clock) -> None:
    for key, name in law_store.keys.of(QUEUE).items():
        raw.flushall()
        law_store.enqueue(QUEUE, [new_job("before", virtual())])
        raw.delete(name)
        raw.execute_command("SET" if QUEUE_KEYS[key] == "list" else "RPUSH", name, "junk")
        assert law_store.faults(QUEUE) == ({"wrong_type": [name]}, False)
        assert law_store.reconcile(QUEUE)["wrong_type"] == 1, key
        assert any(b":set-aside:" in found for found in raw.scan_iter("*")), key
        law_store.enqueue(QUEUE, [new_job("after", virtual())])
        for _ in range(3):
            law_store.reconcile(QUEUE)
        ran = drain(law_store)
        assert ran["after"] == 1, f"{key}: the queue goes on"
        if key != "jobs":
            assert ran["before"] == 1, f"{key}: what was accepted has run"
        assert fsck(law_store, QUEUE) == [], key


@pytest.mark.redis
@pytest.mark.parametrize("key", sorted(QUEUE_KEYS))
def test_the_maintenance_of_a_worker_sets_it_aside_within_half_a_minute(
    redis_store: Store, make_job: Callable[..., NewJob], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Each call to the queue that needs the key fails until then, also those of the maintenance."""
    now = [monotonic()]
    monkeypatch.setattr("django_jobs.worker.maintenance.tasks.monotonic", lambda: now[0])
    redis_store.enqueue(QUEUE, [make_job("before", queue=QUEUE)])
    name = redis_store.keys.of(QUEUE)[key]
    redis_store.transport.command("DEL", name)
    redis_store.transport.command("SET" if QUEUE_KEYS[key] == "list" else "RPUSH", name, "junk")
    tasks = MaintenanceTasks(redis_store, [QUEUE], 30_000)
    end = now[0] + 30
    while tasks.due < end:
        now[0] = max(now[0], tasks.due)
        tasks.step(now[0])
    redis_store.enqueue(QUEUE, [make_job("after", queue=QUEUE)])
    claimed = redis_store.claim(QUEUE, "w", 2, lease=LEASE).claims
    assert {"after"} <= {claim.id for claim in claimed} <= {"before", "after"}


@pytest.mark.redis
def test_a_key_that_another_worker_has_set_aside_first_is_left_as_it_is_by_now(
    law_store: Store, raw: redis.Redis, virtual: Clock
) -> None:
    """Two maintenance processes see it broken.  Before the second one acts, jobs have come into the repaired key."""
    broken = law_store.keys.of(QUEUE)["queued"]
    raw.set(broken, "junk")
    assert law_store._set_aside([broken]) == 1
    assert law_store._set_aside([broken]) == 0
    law_store.enqueue(QUEUE, [new_job("after", virtual())])
    assert law_store._set_aside([broken]) == 0
    assert drain(law_store) == {"after": 1}


@pytest.mark.redis
def test_a_waiter_that_was_let_in_meanwhile_is_not_made_to_wait_again(
    law_store: Store, raw: redis.Redis, virtual: Clock
) -> None:
    """The reconciler looks first and repairs later; in between, work goes on."""
    one = Controls(limit_key="one", limit=1)
    law_store.enqueue(QUEUE, [new_job("first", virtual(), one), new_job("second", virtual(), one)])
    (claim,) = law_store.claim(QUEUE, "worker", 2, lease=LEASE).claims
    seen = [member.decode() for member in raw.zrange(law_store.keys.of(QUEUE)["blocked"], 0, -1)]
    law_store.complete(QUEUE, [Completed(claim, controls=one)])
    assert law_store._repair(QUEUE, "waiters", seen) == 0
    assert fsck(law_store, QUEUE) == []


@pytest.mark.redis
def test_a_waiter_that_only_one_of_the_two_keys_knows_runs_once(
    law_store: Store, raw: redis.Redis, virtual: Clock
) -> None:
    one = Controls(limit_key="one", limit=1)
    ids = ["running", "unknown", "phantom"]
    law_store.enqueue(QUEUE, [new_job(id, virtual(), one) for id in ids])
    (claim,) = law_store.claim(QUEUE, "worker", 3, lease=LEASE).claims
    key = law_store.keys.of(QUEUE)
    raw.zrem(key["blocked"], raw.hget(key["waits"], "phantom"))
    raw.hdel(key["waits"], "unknown")
    law_store.complete(QUEUE, [Completed(claim, controls=one)])
    reconcile(law_store, virtual)
    assert fsck(law_store, QUEUE) == []
    starts: Counter[str] = Counter()
    while claims := law_store.claim(QUEUE, "healthy", 5, lease=LEASE).claims:
        starts.update(claim.id for claim in claims)
        law_store.complete(QUEUE, [Completed(claim, controls=one) for claim in claims])
    assert starts == {"unknown": 1, "phantom": 1}


@pytest.mark.redis
def test_what_is_wrong_behind_thousands_that_are_sound_is_reached(
    law_store: Store, raw: redis.Redis, virtual: Clock
) -> None:
    """A step looks at a thousand slots and a hundred limits; some of what is wrong stands before and behind them."""
    key, many = law_store.keys.of(QUEUE), 2_500
    raw.hset(key["claims"], mapping={f"run-{n}": f"1:{virtual()}:worker" for n in range(many)})
    raw.hset(key["jobs"], mapping={f"run-{n}": new_job(f"run-{n}", virtual()).record for n in range(many)})
    raw.zadd(key["leases"], {"worker": virtual() + 60_000})
    raw.zadd(key["slots"], {f"full\0run-{n}": 0 for n in range(many)})
    lost = {f"{limit}\0gone-{n}" for n in range(20) for limit in ("a", "full", "z")}
    raw.zadd(key["slots"], dict.fromkeys(lost, 0))
    one = [Controls(limit_key=f"limit {n:03}", limit=1) for n in range(250)]
    for name in ("first", "second"):
        law_store.enqueue(QUEUE, [new_job(f"{name}-{n}", virtual(), controls) for n, controls in enumerate(one)])
    assert len(law_store.claim(QUEUE, "worker", 500, lease=60_000).claims) == 250
    stuck = [0, 120, 249]
    raw.zrem(key["slots"], *(f"limit {n:03}\0first-{n}" for n in stuck))
    repairs: Counter[str] = Counter()
    for _ in range(6):
        repairs.update(law_store.reconcile(QUEUE))
    assert repairs["slot_without_claim"] == len(lost)
    assert repairs["waiter_without_limit"] == len(stuck)
    assert {claim.id for claim in law_store.claim(QUEUE, "worker", 500, lease=60_000).claims} == {
        f"second-{n}" for n in stuck
    }


@pytest.mark.redis
@pytest.mark.parametrize("gone", ["waits", "blocked"])
def test_blocked_jobs_outlive_the_loss_of_either_key_that_names_them(
    law_store: Store, raw: redis.Redis, virtual: Clock, gone: str
) -> None:
    """They have not run: those that may run at most once are not given up, and the order stays."""
    once = Controls(limit_key="one", limit=1, at_most_once=True)
    ids = [f"job-{n}" for n in range(5)]
    law_store.enqueue(QUEUE, [new_job(id, virtual(), once) for id in ids])
    starts: list[str] = []
    held = law_store.claim(QUEUE, "worker", 5, lane=Lane.ALONE, lease=LEASE).claims
    raw.delete(law_store.keys.of(QUEUE)[gone])
    reconcile(law_store, Clock())
    assert fsck(law_store, QUEUE) == []
    while held:
        starts += [claim.id for claim in held]
        law_store.complete(QUEUE, [Completed(claim, controls=once) for claim in held])
        held = law_store.claim(QUEUE, "worker", 5, lane=Lane.ALONE, lease=LEASE).claims
    assert starts == ids


@pytest.mark.redis
@pytest.mark.parametrize("controls", [PLAIN, Controls(at_most_once=True)])
def test_a_misplaced_job_leaves_no_check_in(
    law_store: Store, raw: redis.Redis, virtual: Clock, controls: Controls
) -> None:
    law_store.enqueue(QUEUE, [new_job("lost", virtual(), controls)])
    (claim,) = [claim for lane in Lane for claim in law_store.claim(QUEUE, "worker", 1, lane=lane, lease=LEASE).claims]
    assert law_store.checkin(claim, b'{"message":"half way"}')
    raw.hdel(law_store.keys.of(QUEUE)["claims"], "lost")
    law_store.reconcile(QUEUE)
    assert fsck(law_store, QUEUE) == []


def test_a_job_that_was_forgotten_since_the_look_is_no_repair(redis_store, make_job):
    """The ids of a step are read first: a busy queue trims its history before they are looked into."""
    assert redis_store._repair("default", "places", ["gone-meanwhile"]) == 0


@pytest.mark.timed
def test_one_misplaced_job_of_many_is_found_in_steps_that_hold_nobody_up(
    law_store: Store, raw: redis.Redis, virtual: Clock, pace: Pace
) -> None:
    key = law_store.keys.of(QUEUE)
    for first in range(0, MANY, 1000):
        law_store.enqueue(QUEUE, [new_job(f"job-{n}", virtual.now) for n in range(first, first + 1000)])
    raw.zrem(key["queued"], "job-7")
    with configured(raw, slowlog_log_slower_than=50_000):
        raw.slowlog_reset()
        steps, mended = 0, Counter[str]()
        while not mended:
            began = monotonic()
            mended.update({kind: n for kind, n in law_store.reconcile(QUEUE).items() if n})
            pace.within(began, STEP + 0.5, "one step")
            steps += 1
            assert mended or law_store.is_walking(QUEUE), "the next step goes on"
            assert steps < MANY / REPAIRED_AT_ONCE
        slow = [entry["duration"] for entry in raw.slowlog_get()]
    pace.took(max(slow, default=0) / 1_000_000, 0.05, f"of Redis in {steps} steps: {slow}")
    while any(law_store.reconcile(QUEUE).values()) or law_store.is_walking(QUEUE):
        steps += 1
        assert steps < 2 * MANY / REPAIRED_AT_ONCE, "what was looked for has been found"
    assert law_store.stats([QUEUE])[0].counts["queued"] == MANY
    assert fsck(law_store, QUEUE) == []


def test_a_walk_goes_on_where_it_stood(
    law_store: Store, raw: redis.Redis, virtual: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "STEP", 0)
    key = law_store.keys.of(QUEUE)
    for first in range(0, 3000, 1000):
        law_store.enqueue(QUEUE, [new_job(f"job-{n}", virtual.now) for n in range(first, first + 1000)])
    *_, (last, _) = raw.zscan_iter(key["queued"])  # the server's order is random
    raw.hdel(key["jobs"], last)
    steps = 0
    while not any(law_store.reconcile(QUEUE).values()):
        assert law_store.is_walking(QUEUE)
        steps += 1
        assert steps < 100, "each step begins again"
    assert steps > 3, "one step has walked through all of it"
    law_store.reconcile(QUEUE)
    assert not law_store.is_walking(QUEUE), "what was looked for has been found"
