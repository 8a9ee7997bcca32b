"""The web servers under measurement, and their stores."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psutil
import redis

from bench.http.client import NAME, Connection
from bench.running import environment
from bench.server import redis_server

#: Seconds that a server may take until it answers.
PATIENCE = 30.0
UVICORN = ["uvicorn", "--workers", "2", "--loop", "uvloop", "--log-level", "warning"]
#: name → its command; a port follows.
SERVERS = {
    "gunicorn, 2 workers, 4 threads": [
        "gunicorn",
        "--log-level",
        "warning",
        "-w2",
        "-k",
        "gthread",
        "--threads",
        "4",
        "django.core.wsgi:get_wsgi_application()",
    ],
    "uvicorn with uvloop, 2 workers": [*UVICORN, "--factory", "django.core.asgi:get_asgi_application"],
    "the same, the API in 4 threads": [*UVICORN, "bench.http.site_asgi:application"],
}


class Target(NamedTuple):
    """A server under measurement."""

    port: int
    authorization: str
    #: the processes of web server and store, without their children.
    web: int
    store: int
    #: the address of the n-th new job of one run.
    path: Callable[[str, int], str]
    body: bytes
    created: int


@contextmanager
def subjects(rickover: list[str] | None) -> Iterator[dict[str, Target]]:
    """Start all servers; idle ones cost nothing that would show."""
    with redis_server() as url, tempfile.TemporaryDirectory() as folder:
        env = environment(url, f"{folder}/counter") | {"BENCH_DATABASE": f"{folder}/site.sqlite3"}
        env["DJANGO_SETTINGS_MODULE"] = "bench.http.settings"
        secret = subprocess.run(
            [sys.executable, "-c", PREPARE], env=env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()[-1]
        targets: dict[str, Target] = {}
        running: list[subprocess.Popen[bytes]] = []
        try:
            for name, command in SERVERS.items():
                port = free_port()
                bind = f"--port={port}" if command[0] == "uvicorn" else f"--bind=127.0.0.1:{port}"
                running.append(subprocess.Popen([sys.executable, "-m", *command, bind], env=env))
                pid = running[-1].pid
                targets[name] = Target(port, f"Bearer {secret}", pid, redis_pid(url), our_path, OUR_BODY, 201)
            with rickover_server(*rickover) if rickover else nothing() as theirs:
                targets |= theirs
                for target in targets.values():
                    wait_for_port(target.port)
                yield targets
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


#: Makes the tables, a token and a remote type; prints the token.
PREPARE = f"""
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_jobs.models import ApiToken
from django_jobs.remote.models import RemoteJobType
RemoteJobType.objects.create(name={NAME!r}, queue="pull")
print(ApiToken.objects.issue("bench", ("enqueue", "read", "work"), ())[1])
"""
OUR_BODY = b'{"data": {"order": 4711, "customer": "c-42"}}'


def our_path(run: str, number: int) -> str:
    return f"/jobs/v1/jobs/{NAME}/{os.getpid()}-{run}-{time.monotonic_ns()}-{number}"


@contextmanager
def nothing() -> Iterator[dict[str, Target]]:
    yield {}


@contextmanager
def rickover_server(server: str, source: str) -> Iterator[dict[str, Target]]:
    """Its server on a new PostgreSQL, with its tables and one job type."""
    from tests.support.backends.postgres import programs, running_postgres

    found = programs()
    if found is None:
        raise SystemExit("Rickover needs a PostgreSQL server (Debian: apt install postgresql).")
    with running_postgres(found) as postgres, postgres.connect() as connection:
        connection.execute('CREATE EXTENSION "uuid-ossp"')  # its queries call it
        for path in sorted(Path(source, "db", "migrations").glob("*.sql")):
            up = path.read_text().partition("-- +goose Up")[2].partition("-- +goose Down")[0]
            if "EXTENSION" not in up:  # of statistics: the server runs without it
                connection.execute(up.replace("CONCURRENTLY", ""))
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        postmaster = psutil.Process(row[0]).ppid()
        port = free_port()
        address = f"postgres://postgres@/postgres?host={postgres.host}&sslmode=disable&timezone=UTC"
        told = {"DATABASE_URL": address, "PORT": str(port), "PG_SERVER_POOL_SIZE": "10"}
        process = subprocess.Popen(
            [server], env=os.environ | told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for_port(port)
            basic = f"Basic {b64encode(b'test:hymanrickover').decode()}"
            asked = {"name": NAME, "attempts": 3, "concurrency": 1, "delivery_strategy": "at_least_once"}
            status, content = Connection(port, basic).ask("POST", "/v1/jobs", json.dumps(asked).encode())
            assert status in (200, 201), content
            yield {"rickover": Target(port, basic, process.pid, postmaster, rickover_path, OUR_BODY, 202)}
        finally:
            process.terminate()
            process.wait()


def rickover_path(run: str, number: int) -> str:
    return f"/v1/jobs/{NAME}/job_{uuid4()}"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit(f"No server answers on port {port}.") from None
            time.sleep(0.05)


def redis_pid(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        told: dict[str, Any] = client.info("server")  # type: ignore[assignment]
        return int(told["process_id"])
