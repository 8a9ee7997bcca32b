"""Workers that live and cannot renew: stopped for a while, or cut off.  What they do late changes nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.support.backends.proxy import Proxy
from tests.support.backends.redis_process import RedisServer
from tests.support.fsck import fsck
from tests.support.pace import Pace
from tests.support.pools import Pool, Site
from tests.support.processes import is_alive, send_signal
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis]


def freeze(pool: Pool, number: int) -> None:
    """SIGSTOP or SIGCONT for parent and children."""
    for pid in (pool.pid, *pool.children()):
        send_signal(pid, number)


@pytest.mark.accepts("R33", "G50", "R24")
def test_a_job_of_many_leases_starts_once_while_its_worker_is_healthy(site: Site) -> None:
    site.jobs_settings["LEASE"] = 2
    producer = site.producer()
    pools = [site.pool(), site.pool()]
    producer.send("work", 2, 11_000)
    site.ledger.wait("end", 2, seconds=30)
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    assert site.verdict().duplicates == 0


@pytest.mark.accepts("R13", "R04", "R17", "R33")
def test_a_worker_that_was_stopped_for_three_leases_comes_back_too_late(site: Site) -> None:
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    first = site.pool()
    producer.send("work", 4, 2_000)
    producer.send("single", 1, 2_000, prefix="single")
    producer.send("unique", 1, 2_000, prefix="unique")
    site.ledger.wait("start", 4)
    freeze(first, signal.SIGSTOP)
    second = site.pool()
    site.ledger.wait_for(
        lambda events: {e.id for e in events if e.kind == "end"} >= {"single-0", "unique-0", "j-0"},
        "another worker has run what it held",
        seconds=30,
    )
    before = {id: site.store.get("default", id) for id in ("j-0", "single-0", "unique-0")}
    freeze(first, signal.SIGCONT)
    wait_until(lambda: "claim was lost" in first.text(), "it is told that it came too late", seconds=10)
    site.wait_drained()
    for id, info in before.items():
        assert info is not None
        if info.state == "succeeded":
            assert site.store.get("default", id) == info, "what it did late has changed nothing"
    assert fsck(site.store, "default") == []
    producer.send("work", 20, 10, prefix="after")
    site.wait_drained()
    assert first.stop() == 0
    assert second.stop() == 0
    assert max(site.verdict().starts.values()) == 2


@pytest.mark.parametrize("job", ["work", "awork"])
def test_a_worker_that_wakes_up_ends_what_another_runs_by_now(site: Site, job: str) -> None:
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    first = site.pool()
    producer.send(job, 1, 60_000)
    site.ledger.wait("start", 1)
    freeze(first, signal.SIGSTOP)
    second = site.pool()
    site.ledger.wait_for(lambda events: [e.kind for e in events].count("start") == 2, "it runs twice", seconds=30)
    mine, theirs = (event.pid for event in site.ledger.read() if event.kind == "start")
    freeze(first, signal.SIGCONT)
    wait_until(lambda: not is_alive(mine), "the process that runs it beside another is ended", seconds=10)
    assert is_alive(theirs)
    assert "has lost the claims of jobs that it runs" in first.text()
    second.kill_all()
    producer.send("work", 8, 10, prefix="after")
    site.ledger.wait("end", 8, seconds=10)
    assert first.process.poll() is None, "it goes on with other jobs"


def test_a_worker_that_wakes_up_goes_on_with_what_nobody_has_taken(site: Site) -> None:
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    pool = site.pool()
    producer.send("work", 3, 5_000)
    producer.send("awork", 3, 5_000, prefix="async")
    site.ledger.wait("start", 6)
    freeze(pool, signal.SIGSTOP)
    began = monotonic()
    wait_until(lambda: monotonic() - began > 2, "two leases", seconds=10)
    freeze(pool, signal.SIGCONT)
    site.ledger.wait("end", 6, seconds=20)
    site.wait_drained()
    assert pool.stop() == 0
    assert site.verdict().duplicates == 0


@pytest.mark.accepts("R04", "R25", "G60", "P14")
@pytest.mark.parametrize("when", ["later", "already"])
def test_whoever_runs_recovers_what_a_dead_machine_held(site: Site, when: str, pace: Pace) -> None:
    """No worker needs to be started for it, and none that starts late may miss it."""
    site.jobs_settings["LEASE"] = 2
    producer = site.producer()
    doomed, gate = site.pool(), site.folder / "gate"
    producer.send("held", 8, str(gate))
    site.ledger.wait("start", 4)
    rescuer = site.pool() if when == "already" else None
    if rescuer is not None:
        wait_until(lambda: len(rescuer.children()) >= 2, "it runs")
    doomed.kill_all()
    gate.touch()
    began = monotonic()
    if rescuer is None:
        wait_until(lambda: monotonic() - began > 3 * 2, "three leases", seconds=10)
        began = monotonic()
        rescuer = site.pool()
    held = {event.id for event in site.ledger.read() if event.kind == "start" and event.pid in doomed.seen}
    assert held
    site.ledger.wait_for(
        lambda events: any(e.kind == "start" and e.id in held and e.pid not in doomed.seen for e in events),
        "what the dead machine ran begins again",
    )
    pace.within(began, 2 + 5, "a lease and the search")
    site.ledger.wait("end", 8, seconds=20)
    site.wait_drained()
    assert rescuer.stop() == 0
    assert max(site.verdict().starts.values()) <= 2


@pytest.mark.accepts("G74")
def test_a_worker_that_is_cut_off_ends_its_jobs_and_comes_back(server: RedisServer, tmp_path: Path, pace: Pace) -> None:
    """By the time others may run its jobs, it does not: they are gone within two leases.  The worker itself waits."""
    proxy = Proxy(server.port)
    site = Site(tmp_path, proxy.url, LEASE=5)
    site.direct(server.url)
    try:
        producer = site.producer()
        pool = site.pool()
        producer.send("work", 4, 60_000)
        site.ledger.wait("start", 4)
        children = pool.children()
        busy = {event.pid for event in site.ledger.read() if event.kind == "start"} & set(children)
        proxy.silent.set()
        began = monotonic()
        wait_until(lambda: not any(is_alive(pid) for pid in busy), "what may run elsewhere is ended", seconds=20)
        pace.within(began, 2 * 5, "two leases")
        wait_until(lambda: monotonic() - began > 3 * 5, "three leases")
        assert pool.process.poll() is None
        proxy.heal()
        site.ledger.wait_for(
            lambda events: [e for e in events if e.kind == "start" and e.pid not in busy],
            "it runs them again: nobody else was there",
        )
    finally:
        site.close()
        proxy.close()


@pytest.fixture
def paused_server(server: RedisServer) -> Iterator[RedisServer]:
    yield server
    assert server.process is not None
    send_signal(server.process.pid, signal.SIGCONT)


@pytest.mark.accepts("G04", "P03")
def test_after_an_outage_longer_than_a_lease_nobody_who_lives_loses_his_jobs(
    site: Site, paused_server: RedisServer
) -> None:
    """Redis comes back with every lease expired; the workers that held them are still at work."""
    site.jobs_settings["LEASE"] = 6
    producer = site.producer()
    pools = [site.pool(), site.pool()]
    producer.send("work", 8, 9_000)
    site.ledger.wait("start", 8)
    assert paused_server.process is not None
    paused_server.kill()
    down = monotonic()
    wait_until(lambda: monotonic() - down > 4.5, "most of a lease", seconds=10)
    paused_server.start()
    site.ledger.wait("end", 8, seconds=30)
    site.wait_drained()
    assert all(pool.stop() == 0 for pool in pools)
    assert site.verdict().duplicates == 0
