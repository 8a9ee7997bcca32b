"""Signals about jobs that died with their process: sent beside the parent, which no receiver can hold up."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, maintenance_of, site
from tests.support.ledger import Event
from tests.support.pace import Pace
from tests.support.pools import Pool
from tests.support.processes import is_alive, send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]


def listening(site: WorkerSite, how: str = "note", *options: str) -> Pool:
    """A worker whose receivers do that (worker_project/receivers.py)."""
    return site.pool(*options, extra={"WORKER_RECEIVERS": how})


def told(site: WorkerSite, id: str) -> list[Event]:
    return [event for event in site.ledger.read() if event.id == id and event.kind.startswith("job_")]


def wait_told(site: WorkerSite, id: str, kind: str = "job_dead") -> Event:
    wait_until(lambda: kind in [event.kind for event in told(site, id)], f"{kind} of {id} is told", seconds=10)
    return next(event for event in told(site, id) if event.kind == kind)


def crash(site: WorkerSite, pool: Pool) -> str:
    """A job that may run at most once, whose process dies."""
    id = site.put("poison", "kill", at_most_once=True, max_attempts=1)
    site.wait(id, State.DEAD)
    return id


@pytest.mark.accepts("R31", "R07")
def test_what_became_of_a_job_whose_process_died_is_told_as_it_is(site: WorkerSite) -> None:
    pool = listening(site)
    late = site.put("endless", "sleep", timeout=300, max_attempts=1)
    again = site.put("timed", timeout=300, max_attempts=2)
    lost = crash(site, pool)

    for id, kinds, about in (
        (late, ["job_failed", "job_dead"], "TimeoutError/endless"),
        (again, ["job_failed", "job_retried", "job_failed", "job_dead"], "TimeoutError/timed"),
        (lost, ["job_dead"], "str/poison"),
    ):
        wait_told(site, id)
        assert [(event.kind, event.name) for event in told(site, id)] == [(kind, about) for kind in kinds]
        assert pool.pid not in {event.pid for event in told(site, id)}, "the parent has no time for receivers"
    assert pool.stop() == 0


@pytest.mark.parametrize(("name", "options"), [("work", {}), ("awork", {}), ("work", {"timeout": 60_000})])
def test_a_receiver_of_a_start_that_hangs_holds_up_no_job(
    site: WorkerSite, tmp_path: Path, name: str, options: dict[str, int]
) -> None:
    listening(site, f"start:{tmp_path / 'never'}")
    ids = [site.put(name, **options) for _ in range(12)]  # more than there are threads
    for id in ids:
        site.wait(id)


def test_a_receiver_that_hangs_costs_no_claim_and_no_time_limit(site: WorkerSite, tmp_path: Path, pace: Pace) -> None:
    pool = listening(site, f"wait:{tmp_path / 'never'}")
    long = site.put("work", 4_000)
    site.ledger.wait("start", 1, seconds=8)
    first = site.put("endless", "sleep", timeout=300, max_attempts=1)
    wait_told(site, first, "job_failed")

    second = site.put("endless", "sleep", timeout=300, max_attempts=1)
    began = monotonic()
    site.wait(second, State.DEAD, seconds=5)
    pace.within(began, 0.3 + 2, "the time limit")
    assert site.wait(long).crashes == 0
    assert [event.kind for event in site.ledger.read() if event.id == long] == ["start", "end"]
    began = monotonic()
    assert pool.stop() == 0
    pace.within(began, 5, "what hangs is given up in time")
    assert "job_dead" not in [event.kind for event in told(site, first)]


@pytest.mark.parametrize("hangs", [False, True], ids=["dead", "stuck with the one before"])
def test_signals_that_a_maintenance_process_had_not_begun_are_sent_by_the_next_and_none_twice(
    site: WorkerSite, tmp_path: Path, hangs: bool
) -> None:
    flag = tmp_path / "flag"
    pool = listening(site, f"wait:{flag}")
    first = maintenance_of(site, pool)
    if hangs:
        begun = crash(site, pool)
        wait_told(site, begun)
    else:
        flag.touch()
        os.kill(first, signal.SIGSTOP)
    waiting = crash(site, pool)
    os.kill(first, signal.SIGKILL)
    flag.touch()

    assert wait_told(site, waiting).pid not in (first, pool.pid)
    assert pool.stop() == 0
    assert len(told(site, waiting)) == 1
    assert not hangs or len(told(site, begun)) == 1


def test_a_job_that_died_just_before_the_stop_is_told_of_before_the_worker_is_gone(site: WorkerSite) -> None:
    pool = listening(site)
    maintenance = maintenance_of(site, pool)
    os.kill(maintenance, signal.SIGSTOP)
    id = crash(site, pool)
    send_signal(pool.pid, signal.SIGTERM)
    wait_until(lambda: not set(pool.children()) - {maintenance}, "all others have ended", seconds=5)
    os.kill(maintenance, signal.SIGCONT)

    assert pool.process.wait(60) == 0
    assert len(told(site, id)) == 1
    assert not is_alive(maintenance)


def test_a_job_that_dies_while_its_worker_stops_is_told_of(site: WorkerSite) -> None:
    pool = listening(site)
    maintenance = maintenance_of(site, pool)
    id = site.put("deaf", at_most_once=True, max_attempts=1)
    (start,) = wait_until(lambda: [e for e in site.ledger.read() if e.kind == "start"], "it runs", seconds=8)
    send_signal(pool.pid, signal.SIGTERM)
    wait_until(lambda: not set(pool.children()) - {start.pid, maintenance}, "the others have ended", seconds=3)
    send_signal(start.pid, signal.SIGKILL)

    assert pool.process.wait(60) == 0
    assert [event.kind for event in told(site, id)] == ["job_dead"]


def test_a_job_that_may_run_at_most_once_and_is_cut_short_by_the_stop_is_told_of(site: WorkerSite) -> None:
    pool = listening(site, "note", "--drain-timeout", "0.3")
    id = site.put("deaf", at_most_once=True, max_attempts=1)
    site.ledger.wait("start", 1, seconds=8)

    assert pool.stop() == 0
    assert site.info(id).state is State.DEAD
    assert [event.kind for event in told(site, id)] == ["job_dead"]


def test_a_receiver_comes_to_its_end_though_all_processes_are_told_to_stop(site: WorkerSite, tmp_path: Path) -> None:
    """As systemd does it: SIGTERM to each of them."""
    flag = tmp_path / "flag"
    pool = listening(site, f"wait:{flag}")
    maintenance = maintenance_of(site, pool)
    id = crash(site, pool)
    wait_told(site, id)
    for pid in (pool.pid, *pool.children()):
        send_signal(pid, signal.SIGTERM)
    wait_until(lambda: not set(pool.children()) - {maintenance}, "all others have ended", seconds=3)
    flag.touch()

    assert pool.process.wait(60) == 0
    assert [event.kind for event in site.ledger.read() if event.id == id and event.kind == "heard"] == ["heard"]


def test_a_burst_runs_what_a_receiver_enqueues_when_a_job_is_dead(site: WorkerSite, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    id = site.put("poison", "kill", at_most_once=True, max_attempts=1)
    pool = listening(site, f"follow:{flag}", "--burst")
    wait_told(site, id)
    seen = site.store.workers()[0].seen_at
    wait_until(lambda: site.store.workers()[0].seen_at > seen + 500, "it does not end meanwhile", seconds=5)
    flag.touch()

    assert pool.process.wait(60) == 0, pool.text()
    assert [event.kind for event in told(site, id)] == ["job_dead"]
    assert site.info(f"after-{id}").state is State.SUCCEEDED
