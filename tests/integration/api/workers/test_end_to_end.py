"""The whole way: HTTP in, Django's workers, other people's workers, the archive; with parts killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from django_jobs.core.values import State
from django_jobs.stores.redis import Store
from django_jobs.stores.values.options import StoreOptions
from tests.support.backends.missing import need
from tests.support.backends.redis_process import free_ports
from tests.support.pace import Pace

ROOT = Path(__file__).resolve().parents[4]
REMOTE = ROOT / "example_project" / "remote"
ENVIRONMENT = {
    **os.environ,
    "DJANGO_SETTINGS_MODULE": "tests.integration.api.project",
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": "ignore",
}
#: `API_JOBS=10000` for the long run.
JOBS = int(os.environ.get("API_JOBS", "150"))


class Site:
    """A web server, workers and a push worker, each a process that may be killed and started again."""

    def __init__(self, folder: Path, store: str, database: Path, token: str) -> None:
        self.folder, self.token, self.database = folder, token, folder / "site.sqlite3"
        shutil.copy(database, self.database)
        self.web_port, self.push_port = free_ports(2)
        self.url = f"http://localhost:{self.web_port}/jobs"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            **ENVIRONMENT,
            "API_DATABASE": str(self.database),
            "API_STORE": store,
            "API_NAMESPACE": f"e{uuid.uuid4().hex[:10]}",
            "JOBS_URL": self.url,
            "JOBS_TOKEN": token,
            "PUSH_CREDENTIALS": "jobs:sesame",
        }
        self.store = Store.from_setting(store, options=StoreOptions(namespace=self.environment["API_NAMESPACE"]))

    def start(self, part: str) -> None:
        log = (self.folder / f"{part}.log").open("ab")
        self.running[part] = subprocess.Popen(
            COMMANDS[part](self), env=self.environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        process = self.running.pop(part)
        os.killpg(process.pid, number)
        process.wait(timeout=60)

    def close(self) -> None:
        for part in list(self.running):
            self.kill(part)
        self.store.close()

    def ask(self, method: str, path: str, body: Any = None, patience: float = 120.0) -> Any:
        """One request, sent again while the server is away: that is what ids of the caller's are for."""
        data = json.dumps(body if body is not None else {}).encode() if method != "GET" else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        deadline = time.monotonic() + patience
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 503 or time.monotonic() > deadline:
                        raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def until(self, what: str, true: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in self.folder.glob("*.log"))
                pytest.fail(f"{what}: not within {seconds} s: {self.ask('GET', 'v1/stats')}\n{logs}")
            time.sleep(0.1)

    def states(self) -> dict[str, int]:
        states: dict[str, int] = self.ask("GET", "v1/stats")["states"]
        return states


SCOPES = ("enqueue", "read", "manage", "work", "targets")
COMMANDS: dict[str, Callable[[Site], list[str]]] = {
    "web": lambda site: [sys.executable, "-m", "django", "runserver", "--noreload", f"127.0.0.1:{site.web_port}"],
    "workers": lambda site: [sys.executable, "-m", "django", "runworkers", "--processes", "1", "--threads", "4"],
    "push": lambda site: [sys.executable, str(REMOTE / "push_worker.py"), str(site.push_port)],
    "pull": lambda site: [str(REMOTE / "pull_worker.sh"), "pull"],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with its tables and a token."""
    database = tmp_path_factory.mktemp("prepared") / "site.sqlite3"
    code = (
        "from django.core.management import call_command as call; call('migrate', verbosity=0);"
        f"call('jobs', 'token', 'create', 'all', *{[f'--scope={scope}' for scope in SCOPES]!r}, '--json')"
    )
    made = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); {code}"],
        env={**ENVIRONMENT, "API_DATABASE": str(database)}, check=True, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    return database, json.loads(made.stdout)["token"]


@pytest.fixture
def site(redis_server: str, tmp_path: Path, prepared: tuple[Path, str]) -> Iterator[Site]:
    site = Site(tmp_path, redis_server, *prepared)
    try:
        yield site
    finally:
        site.close()


@pytest.mark.accepts("K06", "K17", "K18", "K28")
@pytest.mark.timeout(600 if JOBS < 1000 else 3600)
def test_no_job_is_lost_when_server_workers_and_push_worker_are_killed(site: Site) -> None:
    site.start("web")
    site.start("workers")
    site.start("push")
    body = {"name": "thumbs", "queue": "push", "timeout": 4, "attempts": 50}
    body["url"] = f"http://localhost:{site.push_port}/"
    # Workers run already: the type is picked up by them without a restart.
    site.ask("POST", "v1/job-types", body)
    set_credentials(site)
    for number in range(JOBS):
        if number == JOBS // 3:
            site.kill("push")
            site.kill("web")
            site.start("web")
        if number == JOBS // 2:
            site.start("push")
        if number == JOBS * 2 // 3:
            site.kill("workers")
            site.start("workers")
        site.ask("PUT", f"v1/jobs/thumbs/{number}", {"data": {"width": 4000, "height": 3000 + number}})
    settle(site, JOBS)

    seen = history(site)
    assert Counter(seen) == {str(number): 1 for number in range(JOBS)}
    assert site.states()["succeeded"] == JOBS
    assert site.ask("GET", "v1/jobs/thumbs/0")["result"] == {"width": 320, "height": 240}


def set_credentials(site: Site) -> None:
    """Only administrators name credentials; over HTTP it cannot be done."""
    with contextlib.closing(sqlite3.connect(site.database, timeout=20)) as database, database:
        database.execute("UPDATE django_jobs_remotejobtype SET credentials = 'shop'")


def settle(site: Site, count: int) -> None:
    """Wait until all have ended, however the back-off goes: what waits for its next attempt is called at once."""

    def ended() -> bool:
        states = site.states()
        if states["retry"] and not states["queued"] and not states["running"]:
            site.store.revive("push", list(site.store.ids("push", State.RETRY)[0]))
        return states["succeeded"] + states["dead"] == count

    site.until("every job has ended", ended, 400 if JOBS < 1000 else 3000)
    site.until("the archive has them", lambda: len(history(site)) == count, 120)


def history(site: Site) -> list[str]:
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = site.ask("GET", f"v1/archived-jobs?limit=100&cursor={cursor}")
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    return seen


@pytest.mark.accepts("K17")
def test_a_worker_in_shell_does_jobs_and_django_leaves_them_to_it(site: Site) -> None:
    need("curl", "jq", "sha256sum")
    site.start("web")
    site.start("workers")
    site.ask("POST", "v1/job-types", {"name": "sums", "queue": "pull", "attempts": 2})
    texts = ["abc", "", 'a "quoted" $(text)', "ä\n  two lines  ", "-n", "@file"]
    for number, text in enumerate(texts):
        site.ask("PUT", f"v1/jobs/sums/{number}", {"data": {"text": text}})
    site.ask("PUT", "v1/jobs/sums/bad", {"data": "no text"})
    site.start("pull")
    site.until("all have ended", lambda: site.states()["succeeded"] + site.states()["dead"] == len(texts) + 1, 120)

    for number, text in enumerate(texts):
        job = site.ask("GET", f"v1/jobs/sums/{number}")
        assert job["result"] == {"sha256": sha256(text.rstrip("\n").encode()).hexdigest()}, text
        assert job["attempts"] == 1
    assert "no text" in site.ask("GET", "v1/jobs/sums/bad")["error"]


def test_a_running_worker_ends_remote_attempts_within_five_seconds_of_their_lease(site: Site, pace: Pace) -> None:
    site.start("web")
    site.start("workers")
    site.ask("POST", "v1/job-types", {"name": "sums", "queue": "pull", "attempts": 1})
    site.until("the workers have begun", lambda: len(site.ask("GET", "v1/workers")) == 1, 60)
    lease = 2.0
    claim = "v1/queues/pull/claim"
    for number in range(2):  # at two moments of the round that maintenance makes
        begun, unconfirmed = f"begun-{number}", f"unconfirmed-{number}"
        for id, request_id in ((begun, None), (unconfirmed, unconfirmed)):
            site.ask("PUT", f"v1/jobs/sums/{id}", {"data": 1})
            (job,) = site.ask("POST", claim, {"lease": lease, "request_id": request_id})["jobs"]
            assert job["id"] == id
        claimed = time.monotonic()
        site.until("no attempt runs", lambda: not site.states()["running"], 60)
        pace.within(claimed, lease + 5, "from the claims to their ends")

        assert [each["outcome"] for each in site.ask("GET", f"v1/jobs/sums/{begun}")["log"]] == ["timeout"]
        (again,) = site.ask("POST", claim)["jobs"]
        assert (again["id"], again["attempt"]) == (unconfirmed, 1)
        report = {"status": "succeeded", "token": again["token"]}
        assert site.ask("POST", f"v1/jobs/sums/{unconfirmed}", report)["state"] == "succeeded"
