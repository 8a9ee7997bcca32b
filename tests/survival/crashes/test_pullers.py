"""Remote workers, web servers and Redis are killed at random: accepted jobs are done, and none at most once twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest

from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.redis_process import RedisServer, free_ports
from tests.support.dose import dose
from tests.support.fsck import fsck
from tests.support.pools import ROOT
from tests.support.processes import die_with_parent
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.survival, pytest.mark.redis, pytest.mark.timeout(dose(300, long=3600))]

#: Jobs of each queue; those of "once" are delivered at most once.
JOBS = dose({"pull": 700, "once": 300}, long={"pull": 80_000, "once": 20_000})
PULLERS = dose({"pull": 3, "once": 3}, long={"pull": 12, "once": 8})
#: Jobs of one claim.  Those of "once" are confirmed one by one, within TIMEOUT.
LIMIT = dose({"pull": 10, "once": 10}, long={"pull": 50, "once": 10})
KILLS = dose(
    {"puller": 6, "web": 2, "redis": 1},
    long={"puller": 60, "web": 20, "redis": 6},
)
#: Seconds after which an attempt that sends nothing is over.
TIMEOUT = dose(6, long=20)
#: One call adds this many jobs.
BULK = 200


class Closed(Exception):
    """The test is over, and nobody waits for the answer."""


class Parts:
    """The processes of the test; each may be killed and started again."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder, self.running = folder, dict[str, subprocess.Popen[bytes]]()
        self.ports = free_ports(2)
        self.urls = [f"http://127.0.0.1:{port}/jobs" for port in self.ports]
        self.ledger = folder / "ran"
        self.ledger.touch()
        #: lines of the ledger, and its bytes, when they were last counted.
        self.counted = (0, 0)
        self.closed = False
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.survival.project.pulled",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONWARNINGS": "ignore",
            "API_DATABASE": str(folder / "site.sqlite3"),
            "API_STORE": server.url,
            "API_NAMESPACE": "pulled",
        }
        self.manage("migrate", "--verbosity", "0")
        scopes = [f"--scope={scope}" for scope in ("enqueue", "manage", "work")]
        self.environment["JOBS_TOKEN"] = json.loads(self.manage("jobs", "token", "create", "all", *scopes, "--json"))[
            "token"
        ]

    def manage(self, *words: str) -> bytes:
        command = [sys.executable, "-m", "django", *words]
        return subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout

    def command(self, part: str) -> list[str]:
        kind, _, which = part.partition("-")
        if kind == "web":
            address = f"127.0.0.1:{self.ports[int(which)]}"
            if find_spec("gunicorn") is not None:  # as sites run it; the tests do not need it
                size = ["-k", "gthread", "-w", "1", "--threads", "32", "--keep-alive", "30", "--log-level", "warning"]
                return [sys.executable, "-m", "gunicorn", "tests.survival.project.wsgi", *size, "-b", address]
            return [sys.executable, "-m", "django", "runserver", "--noreload", "--skip-checks", address]
        if kind == "workers":
            return [sys.executable, "-m", "django", "runworkers", "--processes", "1", "--threads", "2", "--no-periodic"]
        puller = [sys.executable, str(ROOT / "tests" / "survival" / "project" / "puller.py"), str(self.ledger)]
        return [*puller, kind, str(LIMIT[kind]), *self.urls]

    def start(self, part: str) -> None:
        with (self.folder / f"{part}.log").open("ab") as log:
            self.running[part] = subprocess.Popen(
                self.command(part),
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def kill(self, part: str) -> None:
        """SIGKILL it and its children."""
        process = self.running.pop(part)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def close(self) -> None:
        self.closed = True
        for part in list(self.running):
            self.kill(part)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send it until it is answered, as a client that chooses the ids may."""
        headers = {"Authorization": f"Bearer {self.environment['JOBS_TOKEN']}", "Content-Type": "application/json"}
        tries, gives_up = 0, monotonic() + 120
        while True:
            url = f"{self.urls[tries % 2]}/v1/{path}"
            request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503:
                        pytest.fail(f"{path}: {error.code} {error.read()!r}")
            except (OSError, HTTPException, ValueError):
                pass
            if self.closed:
                raise Closed
            assert monotonic() < gives_up, self.logs()
            tries += 1
            sleep(0.05)

    def at_work(self) -> str:
        """The worker that has begun the newest run and may not have reported it; "" if it is dead."""
        with self.ledger.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200))
            pid = int((file.read().split() or [b"0"])[-1])
        return next((part for part, process in self.running.items() if process.pid == pid), "")

    def runs(self) -> int:
        """How many runs there have been; reads what is new."""
        with self.ledger.open("rb") as file:
            file.seek(self.counted[1])
            new = file.read()
        self.counted = self.counted[0] + new.count(b"\n"), self.counted[1] + len(new)
        return self.counted[0]

    def ran(self) -> list[str]:
        """The id of the job of each run so far."""
        return [line.split()[0] for line in self.ledger.read_text().splitlines()]

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in self.folder.glob("*.log"))


@pytest.fixture
def parts(tmp_path: Path, server: RedisServer) -> Iterator[Parts]:
    parts = Parts(tmp_path, server)
    yield parts
    parts.close()


@pytest.fixture
def counting(server: RedisServer) -> Iterator[Store]:
    """The store, seen from the test."""
    store = Store.from_setting(server.url, options=StoreOptions(namespace="pulled", history=200_000, dead=200_000))
    yield store
    store.close()


def add_all(parts: Parts, refused: list[Any]) -> None:
    """Enqueue the jobs of all queues, mixed."""
    jobs = [
        {"name": f"work.{queue}", "id": f"{queue}-{n}", "data": n} for queue, many in JOBS.items() for n in range(many)
    ]
    random.Random(3).shuffle(jobs)
    with suppress(Closed):
        for start in range(0, len(jobs), BULK):
            answer = parts.post("jobs", {"jobs": jobs[start : start + BULK]})
            refused += [each for each in answer["jobs"] if each["status"] not in (200, 201)]


@pytest.mark.accepts("K17", "K18", "R03")
def test_whatever_is_killed_remote_workers_lose_no_job_and_run_none_twice_that_must_not(
    parts: Parts, server: RedisServer, counting: Store
) -> None:
    began = monotonic()
    for part in ("web-0", "web-1", "workers"):
        parts.start(part)
    for queue in JOBS:
        kind = {"name": f"work.{queue}", "queue": queue, "timeout": TIMEOUT}
        how = {"delivery_strategy": "at_most_once"} if queue == "once" else {"attempts": 100}
        parts.post("job-types", {**kind, **how})
    for queue, many in PULLERS.items():
        for number in range(many):
            parts.start(f"{queue}-{number}")
    refused: list[Any] = []
    producer = Thread(target=add_all, args=(parts, refused))
    producer.start()

    total, rng = sum(JOBS.values()), random.Random(5)
    blows = [what for what, times in KILLS.items() for _ in range(times)]
    rng.shuffle(blows)
    for number, what in enumerate(blows, 1):  # spread over the work
        share = total * 9 // 10 * number // len(blows)
        wait_until(lambda share=share: parts.runs() >= share, f"{share} runs", seconds=dose(120, long=900), every=0.1)
        if what == "redis":
            server.kill()
            server.start()
        else:
            part = (
                wait_until(parts.at_work, "a worker runs a job") if what == "puller" else rng.choice(["web-0", "web-1"])
            )
            parts.kill(part)
            parts.start(part)
    producer.join()

    def ended() -> bool:
        counts = [stats.counts for stats in counting.stats(list(JOBS))]
        return sum(each["succeeded"] + each["dead"] for each in counts) == total

    wait_until(ended, "every job has ended", seconds=dose(120, long=900), every=0.2)
    took = monotonic() - began
    ran = Counter(parts.ran())
    states = Counter[tuple[str, str]]()
    unknown, never_ran = list[str](), list[str]()
    for queue, many in JOBS.items():
        for start in range(0, many, 500):
            ids = [f"{queue}-{number}" for number in range(start, min(start + 500, many))]
            for id, info in zip(ids, counting.get_many(queue, ids), strict=True):
                if info is None:
                    unknown.append(id)
                    continue
                states[queue, info.state.value] += 1
                if info.state == "succeeded" and not ran[id]:
                    never_ran.append(id)
    again = sum(times > 1 for times in ran.values())
    print(f"\n{total} jobs, {sum(PULLERS.values())} pullers, kills {KILLS}, {took:.0f} s; ended: {dict(states)}")
    print(f"ran more than once: {again} jobs that may")
    assert (refused, unknown, never_ran) == ([], [], [])
    assert states["pull", "succeeded"] == JOBS["pull"]
    assert {id: times for id, times in ran.items() if id.startswith("once") and times > 1} == {}
    # Only an attempt that had begun is lost with its worker.
    assert states["once", "dead"] <= KILLS["puller"] * LIMIT["once"]
    for queue in JOBS:
        assert fsck(counting, queue) == []
