"""Whatever stands in our keys: no call fails in a way its caller does not know, no worker dies, good jobs run."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Job, NewJob, State
from django_jobs.exceptions import StoreError
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.support.backends.redis_process import RedisServer
from tests.support.dose import dose
from tests.support.faults.corruptor import BYTES, Corruptor
from tests.support.faults.walking import QUEUE, Walk
from tests.support.pools import Site
from tests.support.waiting import wait_until
from tests.survival.conftest import Clock


def look(store: Store, queue: str) -> None:
    """What the admin, the CLI and the doctor do."""
    for state in State:
        for info in store.page(queue, state, 0, 50):
            store.get(queue, info.id)
        store.ids(queue, state)
    store.stats([queue])
    store.sums([queue], 0)
    store.last_runs([queue])
    store.overdue(queue)
    store.archive_batch(queue)


def good(id: str, now: int) -> NewJob:
    return NewJob(id, encode(Job(id, QUEUE, "work", b"[[],{}]", now)))


@pytest.mark.redis
@pytest.mark.accepts("R18", "K02")
@pytest.mark.timeout(dose(600, long=3600))
def test_every_verb_survives_every_damage(law_store: Store, virtual: Clock) -> None:
    """Only errors of ours come out, and after the reconciler a new job runs."""
    client = law_store.transport.client
    for seed in range(dose(12, long=200)):
        client.flushall()
        walk = Walk(law_store, virtual, seed, damaged=True)
        corruptor = Corruptor(client, law_store.keys.of(QUEUE), seed)
        for _ in range(25):
            for act in (walk.step, walk.step, walk.step, lambda: look(law_store, QUEUE)):
                try:
                    act()
                except StoreError:
                    continue
                except Exception as error:
                    raise AssertionError(f"seed {seed}: {corruptor.done[-3:]}, {walk.log[-3:]}: {error!r}") from error
            corruptor.strike()
        for _ in range(3):
            law_store.reconcile(QUEUE)
            virtual.now += 20_000
        law_store.resume(QUEUE)
        law_store.resume(QUEUE, name="work")
        law_store.enqueue(QUEUE, [good("good", virtual())])
        claims, rounds = [], 0
        while "good" not in claims and rounds < 200:
            rounds += 1
            claims += [claim.id for claim in law_store.claim(QUEUE, "healthy", 50, lease=60_000).claims]
        assert "good" in claims, f"seed {seed}: {corruptor.done}"


@pytest.mark.redis
@pytest.mark.survival
@pytest.mark.accepts("K02")
@pytest.mark.timeout(dose(600, long=3600))
def test_records_nobody_can_read_go_to_dead_with_their_bytes(site: Site) -> None:
    producer = site.producer()
    pools = [site.pool(), site.pool()]
    names = site.store.keys.of("default")
    client = site.store.transport.client
    for n, record in enumerate(BYTES):
        client.hset(names["jobs"], f"bad-{n}", record)
        client.zadd(names["queued"], {f"bad-{n}": 100 * 2**45 + n})
        producer.send("work", 10, 1, prefix=f"good-{n}")
    site.ledger.wait("end", 10 * len(BYTES), seconds=30)
    wait_until(lambda: site.counts()["queued"] + site.counts()["running"] == 0, "nothing is stuck", seconds=30)
    for n, record in enumerate(BYTES):
        info = site.store.get("default", f"bad-{n}")
        if info is None:
            continue
        assert info.record == record
        if info.state is State.DEAD:
            assert info.attempts[-1].outcome in ("corrupt", "failed", "unknown_job"), (n, record)
    states = {site.state_of(f"bad-{n}") for n in range(len(BYTES))}
    assert "dead" in states
    assert states <= {"dead", "scheduled", "succeeded", "retry", "expired"}
    assert all(pool.process.poll() is None for pool in pools), "nobody died"
    assert all("died" not in pool.text() for pool in pools)
    assert all(pool.stop() == 0 for pool in pools)


@pytest.mark.redis
@pytest.mark.survival
@pytest.mark.accepts("K02", "R04")
@pytest.mark.timeout(dose(600, long=3600))
def test_workers_outlive_random_damage_to_their_store(site: Site, server: RedisServer) -> None:
    producer = site.producer()
    pool = site.pool()
    producer.send("work", 5, prefix="warm")
    site.ledger.wait("end", 5)
    corruptor = Corruptor(server.client(), site.store.keys.of("default"), seed=9)
    for turn in range(dose(12, long=500)):
        for _ in range(10):
            corruptor.strike(types=turn % 3 == 0)
        for _ in range(2):
            site.store.reconcile("default")
        corruptor.client.delete(site.store.keys.of("default")["paused"])
        ids = [f"turn{turn}-{n}" for n in range(5)]
        producer.ask("work", ids, 1)
        answer = producer.answer()
        assert not answer["errors"], (answer, corruptor.done[-10:])
        wait_until(
            lambda t=ids: set(t) <= {e.id for e in site.ledger.read() if e.kind == "end"},
            f"good jobs run after {corruptor.done[-10:]}",
            seconds=20,
        )
    assert pool.process.poll() is None
    assert "died" not in pool.text()
    assert pool.stop() == 0
