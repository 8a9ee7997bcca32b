"""Workers that live and cannot renew: stopped for a while, or cut off.  What they do late changes nothing."""

from __future__ import annotations

import signal
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


@pytest.mark.timed(beside=1)
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
    # Whichever is quicker: a job that ends, or the parent that asks whether the claims still hold.
    said = ("ended after its claim was lost", "has lost the claims of jobs that it runs")
    wait_until(lambda: any(each in first.text() for each in said), "it is told that it came too late", seconds=10)
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
    # Either the store has told it, or on a crowded machine its first call took too long to renew a lease of a second.
    said = ("has lost the claims of jobs that it runs", "cannot renew its leases: its jobs are ended")
    assert any(each in first.text() for each in said), first.text()
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
    assert site.verdict().duplicates == 0, site.repeats()


@pytest.mark.accepts("R04", "R25", "G60", "P14")
def test_a_worker_that_starts_later_recovers_what_a_dead_machine_held(site: Site, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 1
    producer = site.producer()
    doomed, gate = site.pool(), site.folder / "gate"
    producer.send("held", 8, str(gate))
    site.ledger.wait("start", 4)
    doomed.kill_all()
    gate.touch()
    died = monotonic()
    wait_until(lambda: monotonic() - died > 2, "two leases", seconds=10)
    began = monotonic()
    rescuer = site.pool()
    held = {event.id for event in site.ledger.read() if event.kind == "start" and event.pid in doomed.seen}
    assert held
    site.ledger.wait_for(
        lambda events: any(e.kind == "start" and e.id in held and e.pid not in doomed.seen for e in events),
        "what the dead machine ran begins again",
    )
    pace.within(began, 1 + 5, "a lease and the search")
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
        assert pool.process.poll() is None
        proxy.heal()
        site.ledger.wait_for(
            lambda events: [e for e in events if e.kind == "start" and e.pid not in busy],
            "it runs them again: nobody else was there",
        )
    finally:
        site.close()
        proxy.close()
