"""The stores "embedded", on the server of a directory, and "memory", on one that this process and its copies share."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from django_jobs.conf.store_address import embedded_place
from django_jobs.stores.embedded.server import Server
from django_jobs.stores.redis.connection.addresses import make_pool
from django_jobs.stores.redis.connection.transport import Transport
from django_jobs.stores.redis.store import Store
from django_jobs.stores.values.options import StoreOptions


def embedded_store(setting: str, base_dir: str, options: StoreOptions) -> Store:
    """Make the store that DJANGO_JOBS["STORE"] names: "embedded", or "embedded:" with a directory and an option.

    Raises ImproperlyConfigured."""
    path, fsync = embedded_place(setting, base_dir)
    return Store(_transport(Server(path, fsync=fsync), f"embedded:{path}"), options)


class MemoryStore(Store):
    """Jobs that end with the process, for tests.  Each store has data of its own."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(_memory(), replace(options, namespace=f"memory-{uuid4().hex[:12]}"))

    def close(self) -> None:
        """Delete all jobs of this store."""
        if keys := self.all_keys():
            self.transport.client.unlink(*keys)

    def all_keys(self) -> list[bytes]:
        """Return the names of all keys of this store."""
        return list(self.transport.client.scan_iter(match=f"{{{self.keys.namespace}*", count=1000))


@cache
def _memory() -> Transport:
    path = Path(tempfile.gettempdir(), f"django_jobs-{os.getpid()}-{uuid4().hex[:12]}")
    return _transport(Server(path, fsync=None, grace=0), "memory")


def _transport(server: Server, where: str) -> Transport:
    return Transport(make_pool(_Connection, {"server": server}), where)  # type: ignore[arg-type]  # it knows TCP only


class _Connection(redis.UnixDomainSocketConnection):
    """A connection to a private server, which is started if it does not run."""

    def __init__(self, *, server: Server, **options: Any) -> None:
        super().__init__(path=str(server.path), **options)  # type: ignore[no-untyped-call]
        self.server = server

    def _connect(self) -> Any:
        link = self.server.connect()
        link.settimeout(self.socket_timeout)
        return link
