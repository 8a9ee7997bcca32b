"""A Redis server for one run, with the settings of a careful site (append-only file, everysec)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry


@contextmanager
def redis_server(*, append_only: bool = True, under: Sequence[str] = ()) -> Iterator[str]:
    """Start a server on a free port, yield its URL, stop it.  `under`: the command of a program that runs it."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if not program:
        raise SystemExit(
            "The benchmark needs redis-server or valkey-server on PATH (Debian: apt install redis-server)."
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="jobs-bench-")
    aof = "yes" if append_only else "no"
    command = [
        *under,
        program,
        "--port",
        str(port),
        "--dir",
        folder,
        "--save",
        "",
        "--appendonly",
        aof,
        "--loglevel",
        "warning",
        *(["--hz", "1"] if under else []),  # what the server does each second is not counted along
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port, retry=Retry(ConstantBackoff(0.1), 300)) as client:
            client.ping()
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def server_of(url: str) -> str:
    """Return the name and version of the server, and what it allocates memory with.  With jemalloc, which most packages
    have, a job costs the server a third less than with the allocator of the C library."""
    info = redis.Redis.from_url(url).info()
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    return f"{name} {version} ({info['mem_allocator']})"
