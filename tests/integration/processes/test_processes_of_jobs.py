"""Jobs that start processes: those are no workers, obey signals, and end with a job that is ended."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from django_jobs.core.values import State
from tests.integration.workers import WorkerSite, site
from tests.support.pace import Pace
from tests.support.processes import catches, is_alive, open_files, send_signal
from tests.support.waiting import wait_until

__all__ = ["site"]


@contextmanager
def noted(path: Path) -> Iterator[list[int]]:
    """The process ids that a job writes there; they are ended at last."""
    pids: list[int] = []

    def read() -> bool:
        pids[:] = [int(word) for word in path.read_text().split()] if path.exists() else []
        return bool(pids)

    try:
        wait_until(read, "the job has said whom it started", seconds=10)
        yield pids
    finally:
        for pid in pids:
            send_signal(pid, signal.SIGKILL)


def ends(pid: int, seconds: float = 5.0) -> bool:
    """Does the process end within that time?"""
    never, deadline = Event(), monotonic() + seconds
    while is_alive(pid) and monotonic() < deadline:
        never.wait(0.02)
    return not is_alive(pid)


def test_a_pool_of_processes_in_a_job_ends(site: WorkerSite) -> None:
    """Its end is a SIGTERM to each of its processes, and waiting for them."""
    site.pool(threads=4)
    ids = [site.put("pool", 20) for _ in range(8)] + [site.put("terminates") for _ in range(8)]
    results = [site.wait(id, seconds=60).result for id in ids]
    assert results == [b"190"] * 8 + [b"-15"] * 8


@pytest.mark.parametrize("name", ["forks", "aforks"])
@pytest.mark.parametrize("how", ["returns", "exits", "raises"])
def test_a_copy_of_the_process_ends_with_the_job(site: WorkerSite, tmp_path: Path, name: str, how: str) -> None:
    """Whatever it does, it has none of our work to do."""
    pool = site.pool(threads=2)
    id = site.put(name, how, str(tmp_path / "note"))
    with noted(tmp_path / "note") as pids:
        assert site.wait(id).result == b'"the job"'
        assert ends(pids[0]), "the copy"
    assert site.info(id).attempts == ()
    done = [site.put("work") for _ in range(10)]
    for each in done:
        site.wait(each)
    assert pool.stop() == 0
    assert sorted(e.id for e in site.ledger.read() if e.kind == "start") == sorted(done)


@pytest.mark.parametrize("name", ["forks", "aforks"])
def test_a_copy_that_lives_on_claims_nothing_and_obeys_signals(site: WorkerSite, tmp_path: Path, name: str) -> None:
    pool = site.pool(threads=2)
    id = site.put(name, "sleeps", str(tmp_path / "note"))
    with noted(tmp_path / "note") as (copy,):
        site.wait(id)
        if name == "forks":  # on the event loop it may not wait
            # The job may end before its copy has run at all; until then, the copy's signals are blocked.
            wait_until(lambda: not catches(copy, signal.SIGTERM), "our handlers are removed in the copy", seconds=5)
            assert is_alive(copy)
        assert pool.stop() == 0
        later = [site.put("work") for _ in range(5)]
        send_signal(copy, signal.SIGTERM)
        assert ends(copy), "it obeys"
        assert {site.info(each).state for each in later} == {State.QUEUED}


def test_a_copy_keeps_no_connection_of_ours_open(site: WorkerSite, tmp_path: Path) -> None:
    """The server would hand a wake-up to a connection that nobody reads any more."""
    site.pool(threads=2)
    id = site.put("forks", "sleeps", str(tmp_path / "note"))
    with noted(tmp_path / "note") as (copy,):
        site.wait(id)

        def sockets() -> list[str]:
            return [name for name in open_files(copy) if name.startswith("socket:")]

        wait_until(lambda: not sockets(), "its sockets are closed", seconds=5)


FORKS_WHILE_A_THREAD_CONNECTS = """
import os, sys, threading
from django_jobs.runtime import forks

def connect():
    with forks.put_off():
        connecting.set()
        if may_end.wait(30):
            connected.set()

connecting, may_end, connected = threading.Event(), threading.Event(), threading.Event()
forks.guard(lambda: None)
thread = threading.Thread(target=connect)
thread.start()
connecting.wait()
if sys.argv[1] == "soon":
    forks._LONGEST_WAIT = 30
    threading.Timer(0.2, may_end.set).start()
if os.fork() == 0:
    os._exit(connected.is_set())
may_end.set()
thread.join()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize(("when", "connected"), [("soon", "1"), ("never", "0")])
def test_a_fork_waits_for_threads_that_connect_but_not_for_long(when: str, connected: str) -> None:
    """The copy could not close a socket that belongs to no connection yet."""
    command = [sys.executable, "-c", FORKS_WHILE_A_THREAD_CONNECTS, when]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == connected


@pytest.mark.accepts("K19")
def test_a_time_limit_ends_what_the_job_has_started(site: WorkerSite, tmp_path: Path) -> None:
    site.pool(threads=2)
    id = site.put("spawns", str(tmp_path / "note"), timeout=1000, max_attempts=1)
    with noted(tmp_path / "note") as pids:
        assert site.wait(id, State.DEAD).attempts[0].outcome == "timeout"
        assert all(ends(pid, 2.0) for pid in pids), "command and grandchild"


def assert_ends_in_time(site: WorkerSite, id: str, pace: Pace) -> None:
    wait_until(lambda: site.info(id).state is not State.QUEUED, "it is claimed", seconds=20)
    began = monotonic()
    assert site.wait(id, State.DEAD).attempts[0].outcome == "timeout"
    pace.within(began, 1 + 2, "the time limit")


@pytest.mark.accepts("K19")
def test_a_time_limit_counts_what_middleware_takes(site: WorkerSite, pace: Pace) -> None:
    site.jobs_settings["MIDDLEWARE"] = ["tests.integration.worker_project.processes.slow"]
    site.pool(threads=2)
    assert_ends_in_time(site, site.put("held_by_middleware", timeout=1000, max_attempts=1), pace)


@pytest.mark.accepts("K19")
def test_a_time_limit_counts_what_loading_the_arguments_takes(site: WorkerSite, pace: Pace) -> None:
    """A row that the database does not give."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        site.pool(threads=2, extra={"SILENT_DATABASE": str(silent.getsockname()[1])})
        reference = {"$model": ["django_jobs.schedule", "1"]}
        assert_ends_in_time(site, site.put("add", reference, 1, timeout=1000, max_attempts=1), pace)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_other_orders_to_stop_charge_nobody(site: WorkerSite, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # what is ignored here, under nohup say, would be ignored there
    try:
        pool = site.pool(threads=2)
    finally:
        signal.signal(number, before)
    ended, cut = site.put("until_stopped"), site.put("deaf")
    site.ledger.wait("start", 2)
    wait_until(lambda: catches(pool.pid, number), "it listens")
    pool.process.send_signal(number)
    assert pool.process.wait(20) == 0
    assert site.info(ended).state is State.SUCCEEDED
    assert (site.info(cut).state, site.info(cut).crashes) == (State.QUEUED, 0)


def test_sighup_is_ignored_where_the_worker_was_started_with_nohup(site: WorkerSite) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        pool = site.pool(threads=2)
    finally:
        signal.signal(signal.SIGHUP, before)
    site.wait(site.put("work"))
    pool.process.send_signal(signal.SIGHUP)
    site.wait(site.put("work"))
    assert pool.stop() == 0


def test_no_room_for_a_process_costs_no_job_anything(site: WorkerSite, tmp_path: Path) -> None:
    """fork fails with EAGAIN while jobs run and a child must be replaced: what runs goes on."""
    flag = tmp_path / "full"
    pool = site.pool("--max-jobs", "1", threads=1, extra={"NO_ROOM": str(flag)})
    site.wait(site.put("work"))
    runs = site.put("waits_for", str(tmp_path / "go"))
    site.ledger.wait("start", 2)
    flag.touch()
    later = [site.put("work") for _ in range(3)]
    wait_until(lambda: "Starting a process that runs jobs failed" in pool.text(), "it says so", seconds=20)
    assert pool.process.poll() is None
    (tmp_path / "go").touch()
    site.wait(runs)
    flag.unlink()
    for id in later:
        site.wait(id, seconds=20)
    assert all(site.info(id).crashes == 0 for id in (runs, *later))
    assert "works again" in pool.text()
    assert pool.stop() == 0


def test_a_soft_limit_ends_jobs_in_order_beside_others(site: WorkerSite) -> None:
    pool = site.pool(threads=2)
    plain, coroutine, beside = site.put("softly"), site.put("asoftly", max_attempts=1), site.put("work", 1500)
    assert site.wait(plain).result == b'"timeout"'
    (attempt,) = site.wait(coroutine, State.DEAD).attempts
    assert (attempt.outcome, attempt.error_name) == ("failed", "TimeoutError")
    assert attempt.run_ms < 500 + 2000
    assert site.wait(beside).attempts == ()
    assert pool.stop() == 0
