"""Waits until one of many keys changes, on several nodes of a Cluster.

No blocking command waits on keys of two slots.  But a server remembers which keys a connection has read, and tells it
when one of them changes (CLIENT TRACKING).  One connection to each node therefore waits on all queues there, and sends
nothing while nothing happens.  The producers need not know of it, and users need no right to channels.
"""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Protocol

import redis

from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS
from django_jobs.stores.redis.connection.tracking import Tracking

#: Seconds until a node that failed is tried again, and a key that could not be read.
AGAIN, READ_AGAIN = 1.0, 0.25


class Servers(Protocol):
    """What must be known of the nodes."""

    def server_of(self, key: str) -> str:
        """Return the name of the node that has the key; "" if that is not known."""

    def connection_to(self, server: str) -> redis.Connection:
        """Return a new connection, not connected yet.  Raises KeyError for an unknown node, or errors of the driver."""


class KeyWatch:
    """The keys that one thread waits on.  Not safe across threads, nor across a fork."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._lines: dict[str, Tracking] = {}
        #: server → when it may be tried again (monotonic).
        self._away: dict[str, float] = {}
        #: key → the server that will tell of its next change.
        self._armed: dict[str, str] = {}
        #: keys that have changed, or are not empty.
        self._ready: set[str] = set()
        #: key that could not be read → when it is read again (monotonic).
        self._failed: dict[str, float] = {}

    def wait(self, keys: Collection[str], timeout: float, served: Callable[[str], bool]) -> str | None:
        """Wait until `served(key)` returns true for a key that has changed or is not empty.  None: the time is over.

        The keys are lists.  Raises Refused, and what `served` raises."""
        until = monotonic() + timeout
        self._read(0.0)
        self._test_lines()
        self._check_homes(keys)
        while True:
            ready = [key for key in self._ready if key in keys]
            random.shuffle(ready)
            for key in ready:
                self._ready.discard(key)
                if served(key):
                    return key
            self._arm(keys)
            left = until - monotonic()
            if left <= 0:
                return None
            self._read(min(left, READ_AGAIN) if self._failed else left)

    def close(self) -> None:
        for server in list(self._lines):
            self._drop(server)

    def abandon(self) -> None:
        """See Store.abandon."""
        for line in self._lines.values():
            line.abandon()
        self._lines.clear()

    def _check_homes(self, keys: Iterable[str]) -> None:
        """Forget what keys said that are on another node by now."""
        homes: dict[str, str] = {}  # hash tag → server
        for key in keys:
            tag = key.partition("}")[0]
            if tag not in homes:
                homes[tag] = self._servers.server_of(key)
            if self._armed.get(key, homes[tag]) != homes[tag]:
                del self._armed[key]

    def _arm(self, keys: Iterable[str]) -> None:
        """Read the keys whose changes we would not be told of."""
        now, reads = monotonic(), dict[str, list[str]]()
        for key in keys:
            if key not in self._armed and self._failed.get(key, now) <= now:
                self._failed.pop(key, None)
                reads.setdefault(self._servers.server_of(key), []).append(key)
        for server, some in reads.items():
            if server and (line := self._line(server)) is not None:
                self._armed.update(dict.fromkeys(some, server))
                try:
                    line.read_lengths(some)
                except OSError:
                    self._lose(server)

    def _line(self, server: str) -> Tracking | None:
        if server not in self._lines:
            if self._away.get(server, 0.0) > monotonic():
                return None
            try:
                self._lines[server] = Tracking(self._servers.connection_to(server))
            except (*DRIVER_ERRORS, KeyError):
                self._lose(server)
        return self._lines.get(server)

    def _test_lines(self) -> None:
        for server, line in list(self._lines.items()):
            try:
                if line.is_dead(monotonic()):
                    self._lose(server)
            except OSError:
                self._lose(server)

    def _read(self, timeout: float) -> None:
        """Wait for messages, and note what they say."""
        poll = select.poll()
        by_number = {}
        for server, line in self._lines.items():
            by_number[line.fileno()] = server
            poll.register(line.fileno(), select.POLLIN)
        for number, _ in poll.poll(max(timeout, 0.0) * 1000):
            server = by_number[number]
            try:
                for key, answer in self._lines[server].messages():
                    self._note(server, key, answer)
            except OSError:
                self._lose(server)

    def _note(self, server: str, key: str | None, length: int | None) -> None:
        """`length` of the key; -1: it cannot be read here; None: it has changed, as all keys if `key` is None."""
        if key is None:
            changed = [each for each, home in self._armed.items() if home == server]
        else:
            changed = [] if length == 0 else [key]
        for each in changed:
            self._ready.add(each)
            if length is None or length < 0:
                self._armed.pop(each, None)
            if length is not None and length < 0:
                self._failed[each] = monotonic() + READ_AGAIN

    def _lose(self, server: str) -> None:
        self._away[server] = monotonic() + AGAIN
        self._drop(server)

    def _drop(self, server: str) -> None:
        self._armed = {key: home for key, home in self._armed.items() if home != server}
        line = self._lines.pop(server, None)
        if line is not None:
            line.close()
