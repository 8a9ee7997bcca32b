"""What the world sees of a worker that is well, and of one that is not: file, probes, service manager, command."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from django_jobs.core.queue_stats import Pause, QueueStats
from django_jobs.core.values import WorkerInfo
from django_jobs.operations.diagnosis import problems_of
from django_jobs.stores import use_store
from django_jobs.stores.redis import Store
from tests.conftest import Clock
from tests.integration.workers import WorkerSite, site
from tests.support.backends.redis_process import RedisServer, free_port
from tests.support.processes import open_files
from tests.support.waiting import wait_until

__all__ = ["site"]


def ask(port: int, path: str) -> tuple[int, str]:
    """Status and body; 0 if nobody listens yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def health(*words: str) -> tuple[int, Any]:
    """Exit status and output of `jobs health`."""
    out, code = StringIO(), 0
    try:
        call_command("jobs", "health", "--json", *words, stdout=out)
    except SystemExit as exit:
        code = int(exit.code or 0)
    return code, json.loads(out.getvalue())


def shared_children(site: WorkerSite) -> list[int]:
    return [
        each["pid"] for worker in site.store.workers() for each in worker.info["children"] if each["lane"] == "shared"
    ]


def listens(pid: int, port: str) -> bool:
    """Does this process hold the socket that listens at that port (in hexadecimal digits)?"""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(f":{port}") and line[3] == "0A"}
    return not sockets.isdisjoint(open_files(pid))


class Watched:
    """One worker with everything on, and what it shows."""

    def __init__(self, site: WorkerSite, **options: Any) -> None:
        self.port, self.file = free_port(), site.folder / "health"
        words = ["--name", "w1", "--http", f"127.0.0.1:{self.port}", "--health-file", str(self.file)]
        self.pool = site.pool(*words, **options)

    def is_touched(self) -> bool:
        """Is the file touched again, from now on?"""
        before = self.file.stat().st_mtime_ns
        return bool(wait_until(lambda: self.file.stat().st_mtime_ns > before, "it is touched", seconds=10))

    def status(self, path: str) -> int:
        return ask(self.port, path)[0]


@pytest.fixture
def extra() -> dict[str, str]:
    """More in the environment of the worker."""
    return {}


@pytest.fixture
def watched(site: WorkerSite, extra: dict[str, str]) -> Iterator[Watched]:
    use_store(site.store)
    made = Watched(site, extra=extra)
    wait_until(lambda: made.status("/readyz") == 200 and made.file.exists(), "the worker is ready", seconds=20)
    wait_until(lambda: health("--worker", "w1")[0] == 0, "the command says so, too", seconds=10)
    yield made
    use_store(None)


def test_a_worker_in_a_long_job_is_well_and_tells_it_in_all_ways(site: WorkerSite, watched: Watched) -> None:
    site.put("work", 60_000)
    site.ledger.wait("start", 1, seconds=10)
    assert watched.is_touched()
    # A machine that stalls for a lease makes any worker look unwell for a moment.
    wait_until(
        lambda: (watched.status("/livez"), watched.status("/readyz")) == (200, 200), "the probes say that it is well"
    )
    assert watched.status("/nothing") == 404
    wait_until(lambda: health("--worker", "w1") == (0, {"healthy": True, "problems": []}), "so does the command")
    status, text = ask(watched.port, "/metrics")
    assert (status, "django_jobs_workers 1.0" in text) == (200, True)
    watched.pool.stop()
    assert not watched.file.exists()
    assert watched.status("/livez") == 0


def test_a_stopped_child_makes_its_worker_unhealthy_until_it_runs_again(site: WorkerSite, watched: Watched) -> None:
    child = wait_until(lambda: shared_children(site), "a heartbeat names it", seconds=10)[0]
    os.kill(child, signal.SIGSTOP)
    # A status of 503 alone may come from a heartbeat that is late.
    wait_until(lambda: "has not answered" in ask(watched.port, "/livez")[1], "it is seen", seconds=20)
    assert watched.status("/livez") == 503
    touched = watched.file.stat().st_mtime_ns
    seen = site.store.workers()[0].seen_at
    wait_until(lambda: site.store.workers()[0].seen_at > seen + 3000, "the parent goes on", seconds=20)
    wait_until(lambda: health("--worker", "w1")[0] == 1, "the command says so, too", seconds=10)
    assert watched.file.stat().st_mtime_ns == touched
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: watched.status("/livez") == 200, "it runs again", seconds=20)
    assert watched.is_touched()


# The parent writes every two seconds: to wait for 20 s shows nothing more.
@pytest.mark.parametrize("extra", [{"HANGS": "5"}], ids=["5 s"])
def test_a_hanging_parent_is_unhealthy(site: WorkerSite, watched: Watched) -> None:
    os.kill(watched.pool.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: health("--worker", "w1")[0] == 1, "the command says so", seconds=20)
        touched = watched.file.stat().st_mtime_ns
        wait_until(lambda: "hung" in ask(watched.port, "/livez")[1], "the probe says so", seconds=40)
        assert watched.status("/livez") == 503
        assert watched.file.stat().st_mtime_ns == touched
    finally:
        os.kill(watched.pool.pid, signal.SIGCONT)


def test_a_process_for_probes_that_dies_is_replaced(site: WorkerSite, watched: Watched) -> None:
    def listening() -> set[int]:
        return {pid for pid in watched.pool.children() if listens(pid, f"{watched.port:04X}")}

    (pid,) = wait_until(listening, "one process listens")
    os.kill(pid, signal.SIGKILL)
    # That nobody listens lasts for two seconds only: a machine that stalls would miss it.
    wait_until(lambda: listening() - {pid}, "another one listens", seconds=20)
    wait_until(lambda: watched.status("/livez") == 200, "it answers", seconds=20)


@pytest.mark.redis
def test_without_its_store_a_worker_lives_but_is_not_ready(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    site = WorkerSite(tmp_path, server.url, NAMESPACE=f"h{uuid4().hex[:10]}")
    try:
        watched = Watched(site)
        wait_until(lambda: watched.status("/readyz") == 200 and watched.file.exists(), "it is ready", seconds=20)
        server.shutdown()
        wait_until(lambda: watched.status("/readyz") == 503, "it is seen", seconds=30)
        assert "store" in ask(watched.port, "/readyz")[1]
        assert watched.status("/livez") == 200
        status, text = ask(watched.port, "/metrics")
        assert (status, "django_jobs_up 0.0" in text) == (200, True)
        use_store(site.store)
        assert health()[0] == 1
        server.start()
        wait_until(lambda: watched.status("/readyz") == 200, "it is ready again", seconds=30)
        assert watched.is_touched()
    finally:
        use_store(None)
        site.close()
        server.close()


def test_a_service_manager_is_told_that_the_worker_is_ready_and_lives(site: WorkerSite, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        pool = site.pool(extra={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"
        assert manager.recv(100) == b"WATCHDOG=1"
        assert pool.stop() == 0


@pytest.mark.django_db
def test_an_address_that_is_in_use_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(CommandError, match="cannot listen"):
        call_command("runworkers", "--http", f"127.0.0.1:{server.getsockname()[1]}")
    with pytest.raises(CommandError, match="HOST:PORT"):
        call_command("runworkers", "--http", "nowhere")


NOW = 1_800_000_000_000
FREE = {"state": "running", "started_at": NOW - 600_000, "queues": ["default"], "children": [{"jobs": []}]}
WAITING = QueueStats("default", {"queued": 1}, latency=61_000)


@pytest.mark.parametrize(
    ("info", "stats", "well"),
    [
        (FREE, WAITING, False),
        (FREE, replace(WAITING, latency=59_000), True),
        (FREE, replace(WAITING, paused=Pause()), True),
        (FREE, replace(WAITING, queue="other"), True),
        ({**FREE, "started_at": NOW - 1000}, WAITING, True),
        ({**FREE, "state": "quiet"}, WAITING, True),
        ({**FREE, "closed_queues": ["default"]}, WAITING, True),
        ({**FREE, "children": [{"jobs": [{"id": "1"}]}, {"jobs": []}]}, WAITING, True),
        ({**FREE, "problems": ["A child has not answered."]}, replace(WAITING, latency=0), False),
        ({}, WAITING, True),
    ],
    ids=["idle", "soon", "paused", "of others", "young", "quiet", "closed", "busy", "child", "odd"],
)
def test_a_free_worker_that_claims_nothing_though_work_waits_is_unhealthy(
    info: dict[str, Any], stats: QueueStats, well: bool
) -> None:
    assert (problems_of(WorkerInfo("w", NOW, info), [stats], NOW) == []) is well


@pytest.mark.django_db
def test_the_command_judges_one_worker_or_all_and_the_latency(store: Store, clock: Clock, make_job: Any) -> None:
    use_store(store)
    try:
        assert health() == (1, {"healthy": False, "problems": ["No worker runs."]})
        store.publish_worker("w1", {**FREE, "started_at": clock.now - 600_000}, 600_000)
        assert health("--worker", "w2")[1]["problems"] == ["No worker named w2 runs."]
        assert health()[0] == health("--worker", "w1")[0] == 0
        store.enqueue("default", [make_job("a")])
        clock.advance(20_000)
        store.publish_worker("w1", {**FREE, "started_at": clock.now - 600_000}, 600_000)
        assert health("--max-latency", "30")[0] == 0
        assert health("--max-latency", "10")[1]["problems"] == ["The oldest job of default has waited for 20 s."]
        clock.advance(60_000)
        store.publish_worker("w1", {**FREE, "started_at": clock.now - 600_000}, 600_000)
        assert "claims nothing" in health("--worker", "w1")[1]["problems"][0]
        clock.advance(31_000)
        assert "has not reported" in health("--worker", "w1")[1]["problems"][0]
    finally:
        use_store(None)
