"""The stores "embedded", on the server of a directory, and "memory", on one that this process and its copies share."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import finalize

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


#: Namespaces of stores in memory that were collected without being closed, and how many are cleared at once: a look for
#: keys reads those of all stores.
_left: list[str] = []
_MOST_LEFT = 50


class MemoryStore(Store):
    """Jobs that end with the process, for tests.  Each store has data of its own, which go soon after it."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(_memory(), replace(options, namespace=f"memory-{uuid4().hex[:12]}"))
        if len(_left) >= _MOST_LEFT:
            _delete(_left[:])
        # Python may collect a store in the middle of a call to the server, so that its keys cannot be deleted then.
        self._when_gone = finalize(self, _leave, os.getpid(), self.keys.namespace)
        self._when_gone.atexit = False

    def close(self) -> None:
        """Delete all jobs of this store."""
        self._when_gone.detach()
        _delete([self.keys.namespace])

    def all_keys(self) -> list[bytes]:
        """Return the names of all keys of this store."""
        return _keys_of([self.keys.namespace])


def _leave(pid: int, namespace: str) -> None:
    if pid == os.getpid():  # a copy of the process shares the keys, and may not delete them
        _left.append(namespace)


def _keys_of(namespaces: list[str]) -> list[bytes]:
    one = namespaces[0] if len(namespaces) == 1 else "memory-"
    starts = tuple(f"{{{name}".encode() for name in namespaces)
    return [key for key in _memory().client.scan_iter(match=f"{{{one}*", count=1000) if key.startswith(starts)]


def _delete(namespaces: list[str]) -> None:
    if keys := _keys_of(namespaces):
        _memory().client.unlink(*keys)
    _left[:] = [name for name in _left if name not in namespaces]


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
