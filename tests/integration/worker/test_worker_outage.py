"""Workers whose Redis goes away: what they keep doing, what they must stop doing, how they come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite
from tests.support.backends.redis_process import RedisServer
from tests.support.pace import Pace
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of this test's own, to be taken away."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.close()


@pytest.fixture
def site(server: RedisServer, tmp_path: Path) -> Iterator[WorkerSite]:
    made = WorkerSite(tmp_path, server.url, NAMESPACE=f"w{uuid4().hex[:10]}")
    yield made
    made.close()


def test_work_goes_on_after_a_short_outage_and_is_settled_once(site: WorkerSite, server: RedisServer) -> None:
    site.jobs_settings["LEASE"] = 15  # much longer than the outage
    pool = site.pool(threads=2)
    id = site.put("work", 600)
    site.ledger.wait("start", 1, seconds=5)
    server.kill()
    site.ledger.wait("end", 1, seconds=5)
    server.start()

    info = site.wait(id, seconds=8)
    assert (info.crashes, info.failures) == (0, 0)
    site.wait(site.put("work"), seconds=8)
    assert [event.kind for event in site.ledger.read()] == ["start", "end", "start", "end"]
    assert pool.text().count("Claiming for") <= 4, "an outage is said once when it begins, once when it ends"
    assert pool.stop() == 0


@contextmanager
def away(server: RedisServer) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextmanager
def refusing(server: RedisServer) -> Iterator[None]:
    """The user of the workers has lost a permission."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        yield
        client.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.mark.timed
@pytest.mark.parametrize("harm", [away, refusing])
def test_a_worker_that_cannot_renew_kills_its_jobs_and_waits_for_the_store(
    site: WorkerSite, server: RedisServer, pace: Pace, harm: Callable[[RedisServer], AbstractContextManager[None]]
) -> None:
    pool = site.pool()
    site.put("deaf")
    site.put("deaf", timeout=60_000)
    site.ledger.wait("start", 2, seconds=5)
    pids = {event.pid for event in site.ledger.read()}
    began = monotonic()
    with harm(server):
        wait_until(lambda: not any(map(is_alive, pids)), "its jobs are ended by the end of the lease", seconds=5)
        # Plus the time that one call takes to find that nobody answers.
        assert pace.within(began, 2 + 2.5) > 0.5
        wait_until(lambda: monotonic() - began > 3 * 2, "three leases have passed")
        assert pool.process.poll() is None
    back = monotonic()
    site.wait(site.put("work"))
    pace.within(back, 1 + 0.5, "a second after its return, and the job")
    assert "waits for the store" in pool.text()
    assert pool.stop() == 0


@pytest.mark.parametrize("mode", ["--burst"])
def test_who_ends_when_everything_has_run_ends_without_a_store_too(
    site: WorkerSite, server: RedisServer, pace: Pace, mode: str
) -> None:
    """Somebody waits for its end: a cron job, a deployment."""
    pool = site.pool(mode)
    site.put("deaf")
    site.ledger.wait("start", 1, seconds=5)
    began = monotonic()
    server.kill()
    assert pool.process.wait(60) == 1
    pace.within(began, 2 * 2 + 2)


@pytest.mark.parametrize("silent", [0, 1.2])
def test_a_worker_stops_in_time_though_the_store_is_silent(
    site: WorkerSite, server: RedisServer, pace: Pace, silent: float
) -> None:
    """The parent calls the store each second.  After 1.2 s of silence, the order comes while it waits for an answer."""
    site.jobs_settings["LEASE"] = 6
    pool = site.pool("--drain-timeout", "1")
    id = site.put("deaf")
    site.ledger.wait("start", 1, seconds=5)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        since = monotonic()
        wait_until(lambda: monotonic() - since >= silent, "the store was silent for so long")
        began = monotonic()
        pool.process.send_signal(signal.SIGTERM)
        pool.process.wait(60)
        pace.within(began, 1 + 5, "the drain timeout and a call")
    finally:
        server.process.send_signal(signal.SIGCONT)

    site.pool()
    wait_until(lambda: site.info(id).state is State.RUNNING and site.info(id).crashes <= 1, "it runs again", seconds=9)


def test_leases_are_spared_after_an_outage_nobody_could_renew_in(site: WorkerSite, server: RedisServer) -> None:
    """A worker that was frozen with its store may go on with its jobs when both come back, the store first."""
    site.jobs_settings["LEASE"] = lease = 4
    frozen = site.pool()
    id = site.put("work", 4000)
    site.ledger.wait("start", 1, seconds=5)
    other = site.pool()
    wait_until(lambda: len(site.store.workers()) == 2, "both workers are known", seconds=5)
    began = monotonic()
    server.kill()
    for pid in (frozen.pid, *frozen.children()):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "does not answer" in other.text(), "the other has noticed", seconds=5)
    wait_until(lambda: monotonic() - began > lease, "the lease is over", seconds=lease + 1)
    server.start()
    began = monotonic()
    wait_until(lambda: monotonic() - began > lease / 3, "the other has looked twice for jobs that are lost", seconds=5)
    for pid in (frozen.pid, *frozen.children()):
        os.kill(pid, signal.SIGCONT)

    assert site.wait(id, seconds=9).crashes == 0
    assert site.ledger.count("start") == len([event for event in site.ledger.read() if event.kind == "start"])


@pytest.mark.parametrize("key", ["wake", "queued", "claims", "scheduled", "leases"])
def test_a_broken_key_in_one_queue_stops_no_other(server: RedisServer, tmp_path: Path, key: str) -> None:
    namespace = f"w{uuid4().hex[:10]}"
    site = WorkerSite(tmp_path, server.url, NAMESPACE=namespace, QUEUES={"default": {}, "broken": {}})
    try:
        lost = site.put("work", queue="broken")
        with server.client() as client:
            name = f"{{{namespace}:broken}}:{key}"
            client.delete(name)
            client.set(name, "not what it was")
        pool = site.pool()
        for _ in range(3):
            site.wait(site.put("work"), seconds=4)
        assert pool.process.poll() is None
        # Once the key is set aside and the job is put back to where it belongs, it runs as well: where its lease was
        # lost, after the 10 s that a repaired claim is left alone.
        began = monotonic()
        with server.client() as client:
            wait_until(lambda: client.type(name) != b"string", "the key is set aside", seconds=25)
        site.wait(lost, queue="broken", seconds=25 - (monotonic() - began))
        assert pool.stop() == 0
    finally:
        site.close()


def test_a_time_limit_is_kept_while_the_store_is_silent(site: WorkerSite, server: RedisServer, pace: Pace) -> None:
    """The parent waits for the store for seconds; its decision to end a job does not."""
    site.jobs_settings["LEASE"] = 3  # a heartbeat each half second, and no lease ends meanwhile
    pool = site.pool()
    warm(site)
    id = site.put("holds_gil", 60, timeout=2500, max_attempts=1)
    site.ledger.wait_for(lambda events: any(event.id == id for event in events), "it runs")
    (started,) = [event for event in site.ledger.read() if event.id == id]
    limit = started.at / 1e9 + 2.5
    # One heartbeat begins in the last half second before the limit.  It waits 3 s for its answer: longer than promised.
    wait_until(lambda: monotonic() > limit - 0.6, "the limit is near", every=0.01)
    with paused(server):
        wait_until(lambda: not is_alive(started.pid), "its process is ended")
        pace.within(limit, 2, "the limit, and 2 s")
    (attempt,) = site.wait(id, State.DEAD).attempts
    assert attempt.outcome == "timeout"
    assert pool.stop() == 0


def test_a_job_that_has_returned_is_not_over_its_time_because_the_store_is_silent(
    site: WorkerSite, server: RedisServer
) -> None:
    site.jobs_settings["LEASE"] = 15
    pool = site.pool()
    warm(site)
    id = site.put("waits_for", str(site.folder / "go"), timeout=3000)
    site.ledger.wait_for(lambda events: any(event.id == id for event in events), "it runs")
    (started,) = [event for event in site.ledger.read() if event.id == id]
    with paused(server):
        (site.folder / "go").touch()
        wait_until(lambda: monotonic() > started.at / 1e9 + 3.5, "its time is over")
    site.wait(id)
    assert [event.kind for event in site.ledger.read() if event.id == id] == ["start", "end"]
    assert is_alive(started.pid)
    assert pool.stop() == 0


def warm(site: WorkerSite) -> None:
    """Until jobs with a time limit are begun at once."""
    site.wait(site.put("work", timeout=60_000))


@contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    """It hears everything and answers nothing."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)
