"""How workers stop, die and are replaced, and what then becomes of their jobs."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.ledger import Event
from tests.support.pace import Pace
from tests.support.processes import children_of, is_alive, send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]


def starts(site: WorkerSite, id: str) -> list[Event]:
    return [event for event in site.ledger.read() if event.kind == "start" and event.id == id]


def started(site: WorkerSite, id: str, times: int = 1, seconds: float = 8) -> Event:
    wait_until(lambda: len(starts(site, id)) >= times, f"start {times} of {id}", seconds=seconds)
    return starts(site, id)[times - 1]


def zombies(parent: int) -> list[int]:
    found = []
    for pid in children_of(parent):
        with suppress(OSError):  # it is gone
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.append(pid)
    return found


# -- told to stop -----------------------------------------------------------------


@pytest.mark.accepts("R29", "O08", "P22", "P04", "G20")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_jobs_end_before_the_worker_does(site: WorkerSite, number: int) -> None:
    pool = site.pool(threads=2)
    running = [site.put("work", 700) for _ in range(2)]
    for id in running:
        started(site, id)
    waiting = [site.put("work") for _ in range(20)]
    pool.process.send_signal(number)

    assert pool.process.wait(60) == 0
    assert {site.info(id).state for id in running} == {State.SUCCEEDED}
    for id in waiting:
        assert len(starts(site, id)) == (site.info(id).state is State.SUCCEEDED)
        assert site.info(id).crashes == 0


@pytest.mark.accepts("O14", "P11")
def test_one_signal_to_the_parent_stops_all_of_its_workers(site: WorkerSite, pace: Pace) -> None:
    pool = site.pool("--drain-timeout", "60", processes=3, threads=1)
    running = [site.put("until_stopped") for _ in range(3)]
    pids = {started(site, id).pid for id in running}
    assert len(pids) == 3
    children = pool.children()
    assert pids <= set(children)
    began = monotonic()

    assert pool.stop() == 0
    pace.within(began, 2)
    assert {site.info(id).result for id in running} == {b'"stopped in order"'}
    assert not any(is_alive(pid) for pid in children)


@pytest.mark.timed
def test_an_idle_worker_stops_at_once(site: WorkerSite, pace: Pace) -> None:
    pool = site.pool("--drain-timeout", "60", processes=2)
    site.wait(site.put("work"))
    wait_until(lambda: len(pool.children()) == 4, "all children are there", seconds=5)
    began = monotonic()

    assert pool.stop() == 0
    pace.within(began, 1)


@pytest.mark.accepts("G80", "O09")
def test_what_does_not_end_in_time_is_handed_back_uncounted_after_its_process_is_dead(site: WorkerSite) -> None:
    pool = site.pool("--drain-timeout", "0.5")
    id = site.put("deaf")
    first = started(site, id)
    assert pool.stop() == 0

    assert not is_alive(first.pid)
    info = site.info(id)
    assert (info.state, info.failures, info.crashes, info.attempts) == (State.QUEUED, 0, 0, ())
    site.pool()
    assert started(site, id, times=2).pid != first.pid


def test_one_stop_that_arrives_by_several_ways_is_one_stop(site: WorkerSite) -> None:
    """A terminal or `timeout` tells the whole process group, and who supervises it tells the parent as well."""
    pool = site.pool("--drain-timeout", "60")
    id = site.put("work", 700)
    started(site, id)
    # At once, also where this process has to wait for its turn: the parent hears of all when it goes on.
    send_signal(pool.pid, signal.SIGSTOP)
    for pid in (pool.pid, *pool.children()):
        for number in (signal.SIGTERM, signal.SIGINT):
            send_signal(pid, number)
    send_signal(pool.pid, signal.SIGCONT)

    assert pool.process.wait(60) == 0
    assert site.info(id).state is State.SUCCEEDED
    assert "told to stop twice" not in pool.text()


@pytest.mark.accepts("O10")
def test_a_second_signal_means_now(site: WorkerSite, pace: Pace) -> None:
    pool = site.pool("--drain-timeout", "60")
    id = site.put("deaf")
    started(site, id)
    pool.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "stops" in pool.text() or pool.process.poll() is None, "the first is seen", seconds=2)
    began = monotonic()
    while pool.process.poll() is None and monotonic() - began < 5:
        pool.process.send_signal(signal.SIGTERM)

    assert pool.process.wait(60) == 0
    pace.within(began, 3)
    assert site.info(id).state is State.QUEUED
    assert site.info(id).crashes == 0


@pytest.mark.accepts("R28")
def test_an_at_most_once_job_that_was_cut_short_is_dead_not_run_again(site: WorkerSite) -> None:
    pool = site.pool("--drain-timeout", "0.3")
    id = site.put("deaf", at_most_once=True, max_attempts=1)
    started(site, id)
    assert pool.stop() == 0

    assert site.info(id).state is State.DEAD
    assert site.info(id).attempts[-1].outcome == "worker_lost"


# -- children that die ----------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.accepts("G04", "G51")
def test_a_dead_childs_jobs_run_again_at_once(site: WorkerSite, pace: Pace) -> None:
    site.jobs_settings["LEASE"] = 60
    pool = site.pool(threads=2)
    victims = [site.put("until_stopped") for _ in range(2)]
    pid = {started(site, id).pid for id in victims}.pop()
    began = monotonic()
    send_signal(pid, signal.SIGKILL)

    for id in victims:
        assert started(site, id, times=2).pid != pid
    pace.within(began, 1.5, "not the lease, but at once")
    for id in victims:
        info = site.info(id)
        assert (info.crashes, info.failures) == (1, 0)
        assert info.attempts[0].outcome == "worker_lost"
    assert zombies(pool.pid) == []
    assert pool.stop() == 0


def test_whatever_a_worker_is_called_its_jobs_are_recovered(site: WorkerSite) -> None:
    """Holders "remote:…" are jobs that run outside; a worker of that name is none of them."""
    site.pool("--name", "remote:eu")
    id = site.put("until_stopped")
    send_signal(started(site, id).pid, signal.SIGKILL)
    assert started(site, id, times=2)


@pytest.mark.accepts("G60", "P03", "G74")
def test_jobs_of_a_killed_worker_run_elsewhere_after_the_lease(site: WorkerSite, pace: Pace) -> None:
    doomed = site.pool()
    id = site.put("until_stopped")
    started(site, id)
    # It looks for expired leases when it starts, and must have done so: from then on it keeps the promise by its timer.
    site.pool()
    wait_until(lambda: len(site.store.workers()) == 2, "the other worker has started")
    site.wait(site.put("work", 1))
    began = monotonic()
    doomed.kill_all()

    started(site, id, times=2)
    assert pace.within(began, 2 + 5, "a lease and the search") > 0.5, "a lease is not cut short"
    assert site.info(id).crashes == 1


def test_children_do_not_outlive_their_parent(site: WorkerSite) -> None:
    pool = site.pool(processes=2)
    started(site, site.put("until_stopped"))
    children = wait_until(
        lambda: len(pool.children()) == 4 and pool.children(),
        "two, one for jobs alone, the maintenance process",
        seconds=5,
    )
    pool.kill()

    wait_until(lambda: not any(map(is_alive, children)), "the children are gone", seconds=5)


def test_workers_that_cannot_start_give_up_with_an_error(site: WorkerSite) -> None:
    pool = site.pool(crash="claim.before_send")
    site.put("work")

    assert pool.process.wait(60) != 0
    assert "the worker gives up" in pool.text()


# -- jobs that take too long ---------------------------------------------------------------


def test_jobs_with_time_limits_run_side_by_side(site: WorkerSite) -> None:
    site.pool(threads=6)
    ids = [site.put("until_stopped", timeout=60_000) for _ in range(5)]
    site.ledger.wait("start", 4)

    assert site.ledger.count("end") == 0
    assert len({event.pid for event in site.ledger.read()}) >= 4, "each in a process of its own"
    site.store.cancel("default", ids)
