"""What limits cost: jobs over a limit hold nobody up and need no polling; a limit that is reached is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from bench.monitor import sent_commands
from django_jobs.core.values import Completed, Controls, Job, NewJob, State
from django_jobs.serialization.record import decode, encode
from django_jobs.stores.redis import Store
from django_jobs.stores.values.sizes import MAX_BATCH
from django_jobs.worker.child.fetcher import LOOK_ROUND
from tests.integration.workers import WorkerSite, site
from tests.support.backends.redis_process import RedisServer
from tests.support.waiting import wait_until

__all__ = ["site"]

Q = "default"
ONE = Controls(limit_key="turn", limit=1)


def put_many(
    store: Store, prefix: str, number: int, controls: Controls, name: str = "work", args: bytes = b"[[],{}]"
) -> list[str]:
    """Enqueue so many equal jobs; ids PREFIX-0 …"""
    now, ids = store.now(), [f"{prefix}-{n}" for n in range(number)]
    jobs = [NewJob(id, encode(Job(id, Q, name, args, now, controls=controls)), controls) for id in ids]
    for start in range(0, number, MAX_BATCH):
        store.enqueue(Q, jobs[start : start + MAX_BATCH])
    return ids


def counts(store: Store) -> dict[str, int]:
    return store.stats([Q])[0].counts


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[WorkerSite]:
    """Workers on a Redis that nobody else talks to, with the default lease."""
    server = RedisServer(tmp_path / "redis", append_only=False).start()
    made = WorkerSite(tmp_path, server.url, LEASE=30)
    yield made
    made.close()
    server.close()


# -- blocked jobs -----------------------------------------------------------------


@pytest.mark.redis
def test_ten_thousand_blocked_jobs_cost_others_no_more_than_one_would(redis_store: Any, redis_server: str) -> None:
    """Inside the server and between it and the client: the same commands with and without them."""

    def cost_of_a_thousand(prefix: str) -> tuple[int, int]:
        put_many(redis_store, prefix, 1000, Controls())
        with redis.Redis.from_url(redis_server) as client:
            client.config_resetstat()
            done = calls = 0
            while done < 1000:
                claims = redis_store.claim(Q, "w", 100, lease=30_000).claims
                redis_store.complete(Q, [Completed(claim) for claim in claims])
                done, calls = done + len(claims), calls + 2
            return calls, sum(entry["calls"] for entry in client.info("commandstats").values())

    cost_of_a_thousand("first")
    calls, commands = cost_of_a_thousand("without")
    put_many(redis_store, "limited", 10_000, ONE)
    claims = 0
    while counts(redis_store)["queued"]:
        redis_store.claim(Q, "holder", 1, lease=30_000)
        claims += 1
    assert counts(redis_store)["blocked"] == 9_999
    assert claims <= 25, "they are put away by the hundred"
    calls_beside, commands_beside = cost_of_a_thousand("beside")
    assert calls_beside == calls
    # Beside blocked jobs, scripts run in full: about two commands a call, whatever the number of jobs.
    assert commands_beside <= commands + 3 * calls


@pytest.mark.redis
@pytest.mark.parametrize("keys", [1, 10])
def test_a_limit_that_is_not_reached_costs_next_to_no_commands(redis_store: Any, redis_server: str, keys: int) -> None:
    """Slots are taken and given back a batch at a time; bench/worker/controls.py measures what that is in time."""
    for key in range(keys):
        put_many(redis_store, f"k{key}", 1000 // keys, Controls(limit_key=f"key {key}", limit=500))
    with redis.Redis.from_url(redis_server) as client:
        client.config_resetstat()
        done = 0
        while claims := redis_store.claim(Q, "w", 100, lease=30_000).claims:
            redis_store.complete(
                Q, [Completed(claim, controls=decode(claim.id, Q, claim.record).controls) for claim in claims]
            )
            done += len(claims)
        commands = sum(entry["calls"] for entry in client.info("commandstats").values())
    assert done == 1000
    assert commands / done <= 0.6


@pytest.mark.redis
@pytest.mark.accepts("G38", "G49")
def test_jobs_behind_ten_thousand_limited_ones_start_at_once_and_the_blocked_need_no_polling(
    own_site: WorkerSite,
) -> None:
    store, processes = own_site.store, 3  # parent, child, and the child that runs jobs alone
    holder = put_many(store, "holder", 1, ONE, "turn", b"[[true],{}]")[0]
    pool = own_site.pool()
    own_site.ledger.wait("start", 1)
    put_many(store, "limited", 10_000, ONE, "turn")
    own_site.put("work", id="behind")
    own_site.wait("behind", seconds=5)
    wait_until(lambda: counts(store)["blocked"] == 10_000, "all are put away", seconds=5)

    beside = [own_site.put("work") for _ in range(100)]
    for id in beside:
        own_site.wait(id, seconds=5)
    seconds = 6
    # The first seconds may still hear of what came before, and of the check of all these jobs, on a slow machine.
    assert any(sent(own_site, seconds) / seconds / processes <= 2 for _ in range(6))

    # Without any poll they go on when the job that held the slot ends.
    store.cancel(Q, [holder])
    own_site.ledger.wait("end", 1_000, seconds=60)
    assert pool.stop() == 0


def sent(site: WorkerSite, seconds: float) -> int:
    """Commands that clients send meanwhile; those inside scripts are not counted."""
    host, port = site.store_setting.removeprefix("redis://").removesuffix("/0").split(":")
    return sent_commands((host, int(port)), seconds)


# -- limits that are reached ----------------------------------------------------------


def gaps(site: WorkerSite) -> list[float]:
    """Seconds from the end of each job to the start of the next, the smallest first."""
    events = site.ledger.read()
    starts = sorted(event.at for event in events if event.kind == "start")
    ends = sorted(event.at for event in events if event.kind == "end")
    return sorted((start - end) / 1e9 for start, end in zip(starts[1:], ends, strict=False))


@pytest.mark.parametrize("kind", ["queue", "type"])
def test_a_limit_is_used_without_gaps(site: WorkerSite, kind: str) -> None:
    """Two workers, one job at a time: the next starts when one ends.

    At somebody's next look, every LOOK_ROUND, most of them would start later."""
    if kind == "queue":
        site.jobs_settings["QUEUES"] = {Q: {"MAX_CONCURRENCY": 1}}
    pools = [site.pool(threads=2), site.pool(threads=2)]
    warm = [site.put("add", 1, 2) for _ in range(20)]
    for id in warm:
        site.wait(id)
    now, controls = site.store.now(), ONE if kind == "type" else Controls()
    args = b"[[false,50],{}]" if kind == "type" else b"[[50],{}]"
    for n in range(15):
        job = Job(f"j-{n}", Q, "turn" if kind == "type" else "work", args, now, controls=controls)
        site.store.enqueue(Q, [NewJob(job.id, encode(job), controls)])
    site.ledger.wait("end", 15)
    found = gaps(site)
    assert found[len(found) // 2] < LOOK_ROUND / 8, f"s: {found}"
    for id in (f"j-{n}" for n in range(15)):
        assert site.wait(id).state is State.SUCCEEDED
    assert [pool.stop() for pool in pools] == [0, 0]


@pytest.mark.accepts("G39", "K29")
def test_a_limit_of_one_is_one_thread_for_the_whole_fleet(site: WorkerSite) -> None:
    from tests.support.checker import most_at_once

    site.jobs_settings["QUEUES"] = {Q: {"MAX_CONCURRENCY": 3}}
    pools = [site.pool(threads=4), site.pool(threads=4)]
    for n in range(40):
        site.put("work", 10, id=f"free-{n}")
        job = Job(f"one-{n}", Q, "turn", b"[[false,10],{}]", site.store.now(), controls=ONE)
        site.store.enqueue(Q, [NewJob(job.id, encode(job), ONE)])
    site.ledger.wait("end", 80)
    events = site.ledger.read()
    assert most_at_once([event for event in events if event.id.startswith("one-")], {}) == 1
    assert 1 < most_at_once(events, {}) <= 3
    assert [pool.stop() for pool in pools] == [0, 0]
