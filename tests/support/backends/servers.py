"""A Redis server of the test run's own, on a socket in a folder of its own, that cannot outlive the run.

What that server can do is known here and nowhere else: tests ask its `ServerProgram`, never a version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from django_jobs.exceptions import StoreMisconfigured
from django_jobs.stores.embedded.program import find_program
from tests.docs.pages import blocks
from tests.support.backends.missing import missing

#: The shell waits for its input to end: when the test run dies, even by SIGKILL, the pipe closes and the server goes.
_GUARD = '"$@" & server=$!; read -r _; kill -9 $server; wait $server'
#: Seconds until a started server must answer.
_START = 60.0


class ServerProgram(NamedTuple):
    """A server that can be started."""

    path: str
    #: as it says itself, for people: "Redis server v=6.2.14".
    name: str
    #: of the Redis that it is or, a Valkey, stands for.
    version: tuple[int, int]

    @property
    def debug(self) -> list[str]:
        """The options with which it obeys DEBUG: always before Redis 7, which does not know the option."""
        return ["--enable-debug-command", "local"] if self.version >= (7, 0) else []

    def cluster_port(self, port: int) -> list[str]:
        """The options that say where a node of a cluster talks to the others: before Redis 7 it may not be chosen."""
        return ["--cluster-port", str(port)] if self.version >= (7, 0) else []

    def need_rules_for_parts_of_commands(self) -> None:
        """Go on only where `ACL SETUSER` takes rules such as `-client|kill` and `%R~…`."""
        if self.version < (7, 0):
            self._lacks("rules of users for parts of commands came with Redis 7.0")

    def rules_of_users(self, document: Path) -> tuple[list[str], list[str]]:
        """Return the lines of a document that make the users of this server, and those for the nodes of a Cluster."""
        newer, older, cluster = [b.code.splitlines() for b in blocks(document, "") if "ACL" in b.code]
        return newer if self.version >= (7, 0) else older, cluster

    def need_tls(self) -> None:
        """Go on only where the server was built with TLS.  Skipped in continuous integration, too: the servers in
        wheels are not, and who builds them decides it."""
        if not _has_tls(self.path):
            pytest.skip(f"{self.name}: built without TLS.")

    def _lacks(self, what: str) -> None:
        """The oldest server may lack what is newer: in continuous integration only the one that was asked for."""
        reason = f"{self.name}: {what}."
        if os.environ.get("SERVER") == "oldest":
            pytest.skip(reason)
        missing(reason)


@cache
def _examined(path: str) -> ServerProgram:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"((Redis|Valkey) server v=(\d+)\.(\d+)\S*)", said)
    assert found, said
    name, kind, major, minor = found.groups()
    # The first Valkey is the Redis of its day, 7.2, under another name; later ones add to it.
    return ServerProgram(path, name, (7, 2) if kind == "Valkey" else (int(major), int(minor)))


@cache
def _has_tls(path: str) -> bool:
    """A server with TLS ends at once without a certificate, and says so; others know no TLS or cannot listen."""
    without = [path, "--port", "0", "--tls-port", "31999"]
    return b"tls-cert-file" in subprocess.run(without, capture_output=True, timeout=60).stdout


def server_program() -> ServerProgram:
    """The program that the embedded store uses; without one the test is skipped, or fails in continuous integration."""
    try:
        return _examined(find_program())
    except StoreMisconfigured as error:
        missing(f"{error} (`make test` fetches one.)")


@contextmanager
def running_redis(*options: str) -> Iterator[str]:
    """Start a server with append-only persistence, yield its URL, and kill it."""
    program = server_program()
    folder = Path(tempfile.mkdtemp(prefix="djr"))
    socket = folder / "s"
    command = [program.path, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--loglevel", "warning", *program.debug, *options]
    guard = None
    try:
        guard = _start(command, folder)
        if not _answers(socket, guard):
            raise RuntimeError(f"{program.name} did not start: {(folder / 'log').read_text()}")
        yield f"unix://{socket}?db=0"
    finally:
        if guard is not None:
            _stop(guard)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def configured(client: redis.Redis, **values: Any) -> Iterator[None]:
    """Change settings of a server that others use too, and set them back as they were."""
    before = {name: client.config_get(name)[name] for name in (name.replace("_", "-") for name in values)}
    for name, value in zip(before, values.values(), strict=True):
        client.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


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
                time.sleep(0.02)
    return False
