"""The index of failed jobs is made again from the jobs, whatever has become of it, and nothing depends on it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import redis

from django_jobs.core.values import Attempt, Job, Lane, NewJob, Options, State
from django_jobs.serialization.record import encode
from django_jobs.stores.redis import Store
from tests.support.backends.redis_process import RedisServer
from tests.support.fsck import fsck
from tests.survival.conftest import Clock

QUEUE = "indexed"
FAILED = Attempt(1, "failed", 0, 12, "w", "ValueError", "order 7 is gone")
INDEX = ("failures", "grouped", "error_groups", "tag_groups")

pytestmark = pytest.mark.redis


@pytest.fixture
def raw(law_store: Store) -> redis.Redis:
    return law_store.transport.client


def fail(store: Store, number: int, *, retry: bool = False, first: int = 0) -> list[str]:
    """So many jobs that died, or wait for a retry."""
    ids = [f"{'r' if retry else 'd'}{n:04}" for n in range(first, first + number)]
    for id in ids:
        options = Options(tags=f"all {'odd' if int(id[1:]) % 2 else 'even'}")
        job = Job(id, QUEUE, f"shop.job{int(id[1:]) % 3}", b"[[],{}]", store.now(), options)
        store.enqueue(QUEUE, [NewJob(id, encode(job))])
        (claim,) = store.claim(QUEUE, "w", 1, lane=Lane.SHARED, lease=60_000).claims
        error = FAILED._replace(error=f"{'odd' if int(id[1:]) % 2 else 'even'} one")
        if retry:
            store.retry(claim, error, 3_600_000)
        else:
            store.bury(claim, error)
    return ids


def reconciled(store: Store) -> dict[str, int]:
    """Repair until nothing is left to do."""
    sums: dict[str, int] = {}
    while True:
        found = {kind: n for kind, n in store.reconcile(QUEUE).items() if n}
        for kind, n in found.items():
            sums[kind] = sums.get(kind, 0) + n
        if not found and not store.is_walking(QUEUE):
            return sums


def of_groups(store: Store) -> dict[tuple[State, str, str], list[str]]:
    return {
        (state, group.name, group.signature): sorted(
            info.id for info in store.listed([QUEUE], state, 1000, groups=[group])[0]
        )
        for state in (State.DEAD, State.RETRY)
        for group in store.failure_groups([QUEUE], state)
        if group.jobs
    }


def of_tags(store: Store) -> dict[tuple[State, str], list[str]]:
    return {
        (state, group.tag): sorted(info.id for info in store.listed([QUEUE], state, 1000, groups=[group])[0])
        for state in (State.DEAD, State.RETRY)
        for group in store.failure_tags([QUEUE], state)
        if group.jobs
    }


def test_jobs_from_before_the_index_are_added(law_store: Store, raw: redis.Redis) -> None:
    fail(law_store, 250)
    fail(law_store, 40, retry=True)
    whole, by_tag = of_groups(law_store), of_tags(law_store)
    assert [len(by_tag[State.DEAD, tag]) for tag in ("all", "even", "odd")] == [250, 125, 125]
    raw.delete(*(law_store.keys.of(QUEUE)[key] for key in INDEX))
    assert of_groups(law_store) == of_tags(law_store) == {}
    assert law_store.faults(QUEUE).found.keys() == {"failed_without_index"}
    assert reconciled(law_store) == {"failed_without_index": 290}
    assert of_groups(law_store) == whole
    assert of_tags(law_store) == by_tag
    assert fsck(law_store, QUEUE) == []
    assert law_store.faults(QUEUE) == ({}, True)


def test_the_index_by_tags_alone_is_made_again(law_store: Store, raw: redis.Redis) -> None:
    """No sum shows what is wrong: groups that are lost or wrong, and tags that a worker of an older version changed."""
    ids = fail(law_store, 250)
    by_tag, keys = of_tags(law_store), law_store.keys.of(QUEUE)
    raw.hdel(keys["tag_groups"], "Dodd")
    raw.hset(keys["tag_groups"], "Dgone", "777777777777:1:1")
    raw.hset(keys["tag_groups"], "Dall", "777777777777:1:1")
    edited = Job(ids[0], QUEUE, "shop.job0", b"[[],{}]", law_store.now(), Options(tags="all new"))
    raw.hset(keys["jobs"], ids[0], encode(edited))
    by_tag[State.DEAD, "even"].remove(ids[0])
    by_tag[State.DEAD, "new"] = [ids[0]]
    for _ in range(20):
        law_store.reconcile(QUEUE)
    assert of_tags(law_store) == by_tag
    assert law_store.failure_tags([QUEUE], State.DEAD, "all")[0].jobs == len(ids)
    assert fsck(law_store, QUEUE) == []


def test_what_a_worker_without_an_index_did_is_caught_up_with(law_store: Store, raw: redis.Redis) -> None:
    """Jobs that come and go by scripts that know of no index: as many come as go, so that the numbers agree."""
    ids = fail(law_store, 60)
    keys = law_store.keys.of(QUEUE)
    gone, moved = ids[:10], ids[10:20]
    raw.zrem(keys["dead"], *gone)
    for key in ("jobs", "attempts", "tries"):
        raw.hdel(keys[key], *gone)
    raw.zrem(keys["dead"], *moved)
    raw.zadd(keys["queued"], {id: 1e15 + n for n, id in enumerate(moved)})
    groups = law_store.failure_groups([QUEUE], State.DEAD)
    listed = [info.id for info in law_store.listed([QUEUE], State.DEAD, 100, groups=groups)[0]]
    assert sorted(listed) == ids[20:], "a job that has left is in no list"
    before = {key: raw.dump(keys[key]) for key in INDEX}
    fail(law_store, 20, first=100)
    for key in INDEX:
        raw.restore(keys[key], 0, before[key], replace=True)
    for _ in range(20):
        law_store.reconcile(QUEUE)
    assert fsck(law_store, QUEUE) == []
    assert sum(len(each) for each in of_groups(law_store).values()) == 60


@pytest.mark.parametrize("key", INDEX)
@pytest.mark.parametrize("kind", ["string", "list", "junk"])
def test_a_broken_index_stops_no_job(law_store: Store, raw: redis.Redis, virtual: Clock, key: str, kind: str) -> None:
    fail(law_store, 30)
    name = law_store.keys.of(QUEUE)[key]
    if kind == "junk":
        if key == "failures":
            raw.zadd(name, {b"\xff\0": 1, "d00001:9": 0, "nonsense": 0})
        else:
            raw.hset(name, mapping={"00001:": "nonsense\n\n7", "dx\ny": "00001:nan:1:1", "": "x", "\xff": "\0"})
    else:
        raw.delete(name)
        raw.set(name, "x") if kind == "string" else raw.rpush(name, "x")
    dead = fail(law_store, 10, first=100)
    retry = fail(law_store, 10, retry=True)
    assert law_store.delete(QUEUE, dead[:2]) == dead[:2]
    assert law_store.revive(QUEUE, dead[2:4]) == dead[2:4]
    assert law_store.kill(QUEUE, retry[:3], "by hand") == retry[:3]
    virtual.now += 3_600_000
    assert law_store.promote(QUEUE) == 7
    counts = law_store.stats([QUEUE])[0].counts
    assert (counts["dead"], counts["retry"], counts["queued"]) == (39, 0, 9)
    reconciled(law_store)
    for _ in range(20):
        law_store.reconcile(QUEUE)
    assert fsck(law_store, QUEUE) == []
    assert sum(len(each) for each in of_groups(law_store).values()) == 39


@pytest.mark.parametrize("kind", INDEX)
def test_a_long_foreign_text_in_the_index_does_not_stop_the_server(
    law_store: Store, raw: redis.Redis, kind: str
) -> None:
    """A pattern once took a time that grew with the square of it: minutes for a million bytes."""
    fail(law_store, 30)
    whole, by_tag = of_groups(law_store), of_tags(law_store)
    keys, text = law_store.keys.of(QUEUE), b"x" * 1_000_000
    if kind == "failures":
        raw.zadd(keys[kind], {text: 0, b"d" + text: 0})
    else:
        raw.hset(keys[kind], mapping=dict.fromkeys(raw.hkeys(keys[kind]), text))
    raw.config_resetstat()
    reconciled(law_store)
    for _ in range(20):  # no sum shows damage to the groups by tags: each step looks at a few
        law_store.reconcile(QUEUE)
    assert fsck(law_store, QUEUE) == []
    assert of_groups(law_store) == whole
    assert of_tags(law_store) == by_tag
    assert raw.info("commandstats")["cmdstat_evalsha"]["usec_per_call"] < 20_000


def test_the_index_costs_less_than_320_bytes_per_job(law_store: Store, raw: redis.Redis) -> None:
    def ids(n: int) -> list[str]:
        return [f"{law_store.now():012x}{n + i:020x}" for i in range(100)]

    for start in range(0, 4000, 100):
        some = ids(start)
        law_store.enqueue(
            QUEUE, [NewJob(id, encode(Job(id, QUEUE, "shop.work", b"[[],{}]", law_store.now()))) for id in some]
        )
        law_store.kill(QUEUE, some, f"reason {start % 7 * 'x'}")
    used = sum(raw.memory_usage(law_store.keys.of(QUEUE)[key], samples=0) for key in INDEX[:3])
    assert used / 4000 <= 320
    some = [info.id for info in law_store.listed([QUEUE], State.DEAD, 4000)[0]][::3]
    for start in range(0, len(some), 100):
        law_store.revive(QUEUE, some[start : start + 100])
    left = 4000 - len(some)
    used = sum(raw.memory_usage(law_store.keys.of(QUEUE)[key], samples=0) for key in INDEX[:3])
    assert used / left <= 320, "after a third of them has left, too"
    assert raw.exists(law_store.keys.of(QUEUE)["tag_groups"]) == 0, "no job has a tag"
    assert fsck(law_store, QUEUE) == []


class Storm:
    """A transport: before each of its calls, another job dies."""

    def __init__(self, inner: Any, store: Store) -> None:
        self.inner, self.store, self.numbers = inner, store, count(5_000)
        #: jobs that were looked at.
        self.checked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def command(self, *args: Any) -> Any:
        fail(self.store, 1, first=next(self.numbers))
        return self.inner.command(*args)

    def run(self, script: Any, keys: Any, args: Any) -> Any:
        fail(self.store, 1, first=next(self.numbers))
        if script.name == "repair" and args[3] in ("failed", "jobs", "places"):
            self.checked += len(args) - 9
        return self.inner.run(script, keys, args)


def test_jobs_that_fail_meanwhile_are_no_reason_to_check_all(law_store: Store, quiet_server: RedisServer) -> None:
    other = Store.from_setting(quiet_server.url, options=law_store.options)
    fail(law_store, 600)
    assert reconciled(law_store) == {}
    calm = law_store.transport
    law_store.transport = storm = Storm(calm, other)  # type: ignore[assignment]
    law_store.reconcile(QUEUE, 50)
    assert 0 < storm.checked < 500, "a part of the 600 dead jobs, of the records and of the index"
    law_store.transport = calm
    assert fsck(law_store, QUEUE) == []
    other.close()
