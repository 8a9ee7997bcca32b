"""How the store reaches its private server: each new connection first makes sure that the server runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from django_jobs.stores.embedded.server import Server
from django_jobs.stores.redis.connection.addresses import make_pool
from django_jobs.stores.redis.connection.scripts import Argument, Script
from django_jobs.stores.redis.connection.thread_connection import ThreadConnection
from django_jobs.stores.redis.connection.transport import Transport


class Connection(redis.UnixDomainSocketConnection):
    """A connection to a private server."""

    def __init__(self, *, server: Server, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.server = server

    def _connect(self) -> Any:
        self.server.ensure()
        self.path = self.server.socket
        return super()._connect()  # type: ignore[no-untyped-call]


class EmbeddedTransport(Transport):
    """Calls to the server of a directory.  If that was removed or replaced, nothing more is written there."""

    def __init__(self, server: Server, where: str) -> None:
        super().__init__(_pool(server), where)
        self.server = server

    def _connection(self) -> ThreadConnection:
        self._check()
        return super()._connection()

    def run_ahead(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Callable[[], Any]:
        self._check()
        return super().run_ahead(script, keys, args)

    def _check(self) -> None:
        connection = self._local.connection
        if connection is None or connection.pid != os.getpid() or self.server.is_here():
            return
        # The server would accept jobs into files that nobody can open again.
        with suppress(Exception):
            connection.raw._sock.sendall(  # type: ignore[attr-defined]
                b"SHUTDOWN NOSAVE\r\n"
            )
        self.close()


def memory_transport() -> Transport:
    """Make a transport to a new server that keeps nothing and ends with this process and its copies."""
    path = Path(tempfile.mkdtemp(prefix="django_jobs-"))
    return Transport(_pool(Server(path, fsync=None, grace=0)), "memory")


def _pool(server: Server) -> redis.ConnectionPool:
    return make_pool(Connection, {"server": server})  # type: ignore[arg-type]  # the stubs know TCP only
