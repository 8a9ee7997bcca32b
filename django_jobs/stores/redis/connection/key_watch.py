"""Waits until one of many keys changes, on several nodes of a Cluster.

No blocking command waits on keys of two slots.  But a server remembers which keys a connection has read, and reports
the next change of each (CLIENT TRACKING).  One connection to each node therefore waits on all queues there, and sends
nothing while nothing happens.  Producers do nothing for this, and users need no right to channels.
"""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Protocol

import redis

from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS
from django_jobs.stores.redis.connection.tracking import TrackingConnection

#: Seconds after which a failed node is tried again, and a key that could not be read is read again.
AGAIN, READ_AGAIN = 1.0, 0.25


class Servers(Protocol):
    """What this module needs to know about the nodes."""

    def server_of(self, key: str) -> str:
        """Return the name of the node that has the key; "" if that is not known."""

    def connection_to(self, server: str) -> redis.Connection:
        """Return a new connection, not connected yet.  Raises KeyError for an unknown node, or errors of the driver."""


class KeyWatch:
    """The keys that one thread waits on.  Not safe across threads or forks."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._connections: dict[str, TrackingConnection] = {}
        #: server → when it may be tried again (monotonic).
        self._retry_at: dict[str, float] = {}
        #: key → the server that will report its next change.
        self._tracked: dict[str, str] = {}
        #: keys that have changed, or are not empty.
        self._ready: set[str] = set()
        #: key that could not be read → when it is read again (monotonic).
        self._failed: dict[str, float] = {}

    def wait(self, keys: Collection[str], timeout: float, served: Callable[[str], bool]) -> str | None:
        """Wait until `served(key)` returns true for a key that has changed or is not empty.  None: the time is over.

        The keys are lists.  Raises TrackingRefused, and what `served` raises."""
        until = monotonic() + timeout
        self._read(0.0)
        self._test_connections()
        self._forget_moved(keys)
        while True:
            ready = [key for key in self._ready if key in keys]
            random.shuffle(ready)
            for key in ready:
                self._ready.discard(key)
                if served(key):
                    return key
            self._track(keys)
            left = until - monotonic()
            if left <= 0:
                return None
            self._read(min(left, READ_AGAIN) if self._failed else left)

    def close(self) -> None:
        for server in list(self._connections):
            self._drop(server)

    def abandon(self) -> None:
        """See Store.abandon."""
        for connection in self._connections.values():
            connection.abandon()
        self._connections.clear()

    def _forget_moved(self, keys: Iterable[str]) -> None:
        """Track the keys again that have moved to another node."""
        homes: dict[str, str] = {}  # hash tag → server
        for key in keys:
            tag = key.partition("}")[0]
            if tag not in homes:
                homes[tag] = self._servers.server_of(key)
            if self._tracked.get(key, homes[tag]) != homes[tag]:
                del self._tracked[key]

    def _track(self, keys: Iterable[str]) -> None:
        """Read the keys that no server tracks for us: then a server does."""
        now, reads = monotonic(), dict[str, list[str]]()
        for key in keys:
            if key not in self._tracked and self._failed.get(key, now) <= now:
                self._failed.pop(key, None)
                reads.setdefault(self._servers.server_of(key), []).append(key)
        for server, some in reads.items():
            if server and (connection := self._connection(server)) is not None:
                self._tracked.update(dict.fromkeys(some, server))
                try:
                    connection.read_lengths(some)
                except OSError:
                    self._lose(server)

    def _connection(self, server: str) -> TrackingConnection | None:
        if server not in self._connections:
            if self._retry_at.get(server, 0.0) > monotonic():
                return None
            try:
                self._connections[server] = TrackingConnection(self._servers.connection_to(server))
            except (*DRIVER_ERRORS, KeyError):
                self._lose(server)
        return self._connections.get(server)

    def _test_connections(self) -> None:
        for server, connection in list(self._connections.items()):
            try:
                if connection.is_dead(monotonic()):
                    self._lose(server)
            except OSError:
                self._lose(server)

    def _read(self, timeout: float) -> None:
        """Wait for messages, and handle them."""
        poll = select.poll()
        by_number = {}
        for server, connection in self._connections.items():
            by_number[connection.fileno()] = server
            poll.register(connection.fileno(), select.POLLIN)
        for number, _ in poll.poll(max(timeout, 0.0) * 1000):
            server = by_number[number]
            try:
                for key, answer in self._connections[server].messages():
                    self._note(server, key, answer)
            except OSError:
                self._lose(server)

    def _note(self, server: str, key: str | None, length: int | None) -> None:
        """Handle one message: `length` is the length of the key, -1 if it cannot be read here, None if it has changed.

        `key`: None if all keys have changed."""
        if key is None:
            changed = [each for each, home in self._tracked.items() if home == server]
        else:
            changed = [] if length == 0 else [key]
        for each in changed:
            self._ready.add(each)
            if length is None or length < 0:
                self._tracked.pop(each, None)
            if length is not None and length < 0:
                self._failed[each] = monotonic() + READ_AGAIN

    def _lose(self, server: str) -> None:
        self._retry_at[server] = monotonic() + AGAIN
        self._drop(server)

    def _drop(self, server: str) -> None:
        self._tracked = {key: home for key, home in self._tracked.items() if home != server}
        connection = self._connections.pop(server, None)
        if connection is not None:
            connection.close()
