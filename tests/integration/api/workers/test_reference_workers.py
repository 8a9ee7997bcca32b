"""The pull workers of example_project/remote, in three languages, on a network that loses requests and answers."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from django_jobs.execution.remote_reports import RemoteWatch
from django_jobs.models import ApiToken
from django_jobs.stores.redis import Store
from tests.docs.pages import ROOT
from tests.support.backends.missing import need_toolchain
from tests.support.dose import dose
from tests.support.waiting import PATIENCE, wait_until

Ask = Callable[..., tuple[int, Any]]
REMOTE = ROOT / "example_project" / "remote"
JOBS = dose(30, long=2_000, quick=20)
#: The parts of requests that never arrive, and of answers that are lost after the server has acted.
LOST_REQUESTS, LOST_ANSWERS = 0.1, 0.3


class Lossy(ThreadingHTTPServer):
    """Passes calls on to the server, and loses some."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.random, self.lost = target, Random(7), Counter[str]()
        self.claims_are_lost = False
        #: calls that the server has not answered yet, and what it answered with a status of 500 or more.
        self.open_calls = set[int]()
        self.errors = list[str]()
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/jobs"

    def handle_error(self, *_: Any) -> None:
        """A worker that was ended while it waited for its answer."""


class Handler(BaseHTTPRequestHandler):
    server: Lossy

    def do_POST(self) -> None:
        chance = self.server.random.random()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if chance < LOST_REQUESTS:
            self.server.lost["requests"] += 1
            return  # the connection closes without an answer
        names = ("Authorization", "Content-Type")
        request = urllib.request.Request(
            self.server.target + self.path, body, {name: self.headers[name] for name in names}, method="POST"
        )
        self.server.open_calls.add(id(self))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        finally:
            self.server.open_calls.discard(id(self))
        if status >= 500:
            self.server.errors.append(f"{status} {self.path} {text!r}")
        if chance < LOST_REQUESTS + LOST_ANSWERS or (self.server.claims_are_lost and self.path.endswith("/claim")):
            self.server.lost["answers"] += 1
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def lossy(busy_server: Any) -> Iterator[Lossy]:
    with Lossy(busy_server.url) as server:
        yield server
        server.shutdown()


def python(folder: Path) -> list[str]:
    return [sys.executable, str(REMOTE / "pull_worker.py")]


def node(folder: Path) -> list[str]:
    need_toolchain("node")
    return ["node", str(REMOTE / "pull_worker.mjs")]


def go(folder: Path) -> list[str]:
    need_toolchain("go")
    built = folder / "pull_worker"
    caches = {"GOCACHE": str(folder / "cache"), "GOPATH": str(folder / "path"), "GOFLAGS": "-mod=mod"}
    subprocess.run(
        ["go", "build", "-o", str(built), str(REMOTE / "pull_worker.go")], check=True, env={**os.environ, **caches}
    )
    return [str(built)]


@pytest.mark.parametrize("language", [python, node, go])
def test_a_worker_loses_nothing_and_runs_no_at_most_once_job_twice(
    ask: Ask, lossy: Lossy, shared_store: Store, tmp_path: Path, language: Callable[[Path], list[str]]
) -> None:
    command = language(tmp_path)
    ask("POST", "v1/job-types", {"name": "sum.often", "queue": "pull"})
    ask("POST", "v1/job-types", {"name": "sum.once", "queue": "pull", "delivery_strategy": "at_most_once"})
    wanted = {f"{kind}-{number}": f"{kind} {number} ß" for kind in ("often", "once") for number in range(JOBS)}
    jobs = [{"name": f"sum.{id.split('-')[0]}", "id": id, "data": {"text": text}} for id, text in wanted.items()]
    jobs.append({"name": "sum.often", "id": "wrong", "data": {"text": None}})
    for start in range(0, len(jobs), 1000):
        status, answer = ask("POST", "v1/jobs", {"jobs": jobs[start : start + 1000]})
        assert (status, {each["status"] for each in answer["jobs"]}) == (200, {201})

    _, secret = ApiToken.objects.issue("worker", ["work"])
    log = tmp_path / "ran"
    watch = RemoteWatch(shared_store, lambda: ["pull"])
    environment = {**os.environ, "JOBS_URL": lossy.url, "JOBS_TOKEN": secret}
    with log.open("wb") as out:
        workers = [subprocess.Popen([*command, "pull"], env=environment, stdout=out) for _ in range(2)]
    try:

        def all_have_ended() -> bool:
            watch.tick()  # as `runworkers` does
            counts = shared_store.stats(["pull"])[0].counts
            return counts["succeeded"] + counts["dead"] == len(jobs)

        wait_until(all_have_ended, "all jobs have ended", seconds=120 + JOBS, every=0.2)
        lossy.claims_are_lost = True  # an idle worker needs none to end
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(PATIENCE)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        # A claim that still waits would take jobs of the next test.
        wait_until(lambda: not lossy.open_calls, "the server has answered all calls")

    assert lossy.errors == []
    assert [worker.returncode for worker in workers] == [0, 0]
    assert lossy.lost["requests"]
    assert lossy.lost["answers"]
    for start in range(0, len(jobs), 500):
        for info in shared_store.get_many("pull", [str(job["id"]) for job in jobs[start : start + 500]]):
            if info.id == "wrong":
                assert info.state == "dead"
            else:
                assert info.state == "succeeded", info
    for id in list(wanted)[:: max(1, JOBS // 20)]:
        result = ask("GET", f"v1/jobs/sum.{id.split('-')[0]}/{id}")[1]["result"]
        assert result == {"sha256": sha256(wanted[id].encode()).hexdigest()}
    ran = Counter(log.read_text().split())
    assert set(ran) == {*wanted, "wrong"}
    assert {id: times for id, times in ran.items() if id.startswith("once") and times != 1} == {}


@pytest.mark.parametrize("name", ["pull_worker.py", "pull_worker.mjs", "pull_worker.go"])
def test_a_worker_is_short_enough_to_be_read(name: str) -> None:
    assert len((REMOTE / name).read_text().splitlines()) <= 150
