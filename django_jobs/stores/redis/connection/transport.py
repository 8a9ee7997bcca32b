"""One call of one script: packing, sending, sending again after a lost reply, and the errors.

Each thread uses its connection directly: a call through redis-py's client costs three times as much, and its repeats
(10 times by default) know neither our deadline nor which calls may be repeated.  All calls here may be repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis import exceptions as driver
from redis.sentinel import SentinelConnectionPool

from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.redis.connection.errors import is_passing, translate
from django_jobs.stores.redis.connection.replies import Argument, abandon, as_sent, in_order, read_reply
from django_jobs.stores.redis.connection.retry import DEADLINE, persist
from django_jobs.stores.redis.connection.scripts import Script

#: Seconds that the answer to a blocking command may take beyond the command's own timeout.
PATIENCE = 1.0
#: The calls for which a caller other than a worker waits: enqueueing, and what comes before the first enqueue.
URGENT = frozenset({"enqueue", "enqueue_plain", "SADD"})

Call = tuple[Script, Sequence[str], Sequence[Argument]]


class _Slot(threading.local):
    """The connection of this thread, with the process that it belongs to."""

    held: _Held | None = None


class _Held:
    """Returns the connection to the pool when its thread ends."""

    def __init__(self, pool: redis.ConnectionPool, connection: redis.Connection) -> None:
        self.pid = os.getpid()
        self.pool, self.connection = pool, connection
        self.broken = False

    def mend(self) -> None:
        """Connect again after `drop`.  Sending would also reconnect, but only this asks Sentinel for a new address."""
        if self.broken:
            self.connection.connect()
            self.broken = False

    def drop(self) -> None:
        """Disconnect, so that the next call begins on a new socket."""
        self.broken = True
        self.connection.disconnect()

    def __del__(self) -> None:
        if self.pid == os.getpid():
            self.pool.release(self.connection)


class Transport:
    """Standalone servers, unix sockets, TLS and Sentinel.  Safe across threads and forks."""

    #: Whether one call may touch keys of several queues.
    spans = True

    def __init__(self, pool: redis.ConnectionPool, where: str) -> None:
        self.pool = pool
        self.where = where
        self._slot = _Slot()
        self._client: redis.Redis | None = None
        # Behind Sentinel, a server that is gone is replaced within moments.
        self._urgent = frozenset() if isinstance(pool, SentinelConnectionPool) else URGENT

    @property
    def client(self) -> redis.Redis:
        """An ordinary client on the same pool, for plain reads that are not time-critical."""
        if self._client is None:
            self._client = redis.Redis(connection_pool=self.pool)
        return self._client

    def _held(self) -> _Held:
        held = self._slot.held
        if held is None or held.pid != os.getpid():
            held = self._slot.held = _Held(self.pool, self.pool.get_connection())
        return held

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run a script, repeated as in `persist`."""
        return persist(self.where, self._once, script, keys, args, urgent=script.name in self._urgent)

    def command(self, *args: Argument) -> Any:
        """Run one plain command that may be sent twice."""
        return persist(self.where, self._once, None, (), args, urgent=args[0] in self._urgent)

    def blocking(self, timeout: float, *args: Argument) -> Any:
        """Run a command that a server that is up answers after `timeout` seconds at the latest."""
        return persist(self.where, self._once, None, (), args, timeout + PATIENCE)

    def _once(self, script: Script | None, keys: Sequence[str], args: Sequence[Argument], wait: float = 0.0) -> Any:
        held = self._held()  # kept for the whole call: `close` must not give its connection to another thread
        connection = held.connection
        try:
            held.mend()
            if script is None:
                connection.send_command(*args)
                # A timeout of its own: that of all other reads may be shorter (`?socket_timeout=1`).
                if wait and not connection.can_read(wait):
                    raise driver.TimeoutError(f"no answer after {wait:g} s")
                return connection.read_response()
            connection.send_command(b"EVALSHA", script.sha, len(keys), *keys, *args)
            try:
                return connection.read_response()
            except driver.NoScriptError:
                connection.send_command(b"EVAL", script.source, len(keys), *keys, *args)
                return connection.read_response()
        except driver.ResponseError as error:
            if is_passing(error):  # a demoted or loading server: the next try finds the right one
                held.drop()
            raise
        except BaseException:
            held.drop()  # half a reply may be in the socket, and the next call must not read it
            raise

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts that may be sent twice in one round trip.  If the server refuses one of them, a StoreError is
        returned in its place."""
        replies = persist(self.where, self._together, calls) if calls else []
        return [translate(reply, self.where) if isinstance(reply, Exception) else reply for reply in replies]

    def _together(self, calls: Sequence[Call]) -> list[Any]:
        held = self._held()
        connection = held.connection
        try:
            held.mend()
            packed = [(b"EVALSHA", script.sha, len(keys), *keys, *args) for script, keys, args in calls]
            connection.send_packed_command(connection.pack_commands(packed))
            replies = [read_reply(connection) for _ in calls]
        except BaseException:
            held.drop()
            raise
        for i, reply in enumerate(replies):
            if isinstance(reply, driver.NoScriptError):
                replies[i] = self._once(*calls[i])
            elif isinstance(reply, Exception) and is_passing(reply):
                held.drop()
                raise reply
        return replies

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run plain commands in this order on one connection to the server that has the key."""
        return list(persist(self.where, self._in_order, commands))

    def _in_order(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        held = self._held()
        try:
            held.mend()
            return in_order(held.connection, commands)
        except BaseException:
            held.drop()
            raise

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send plain reads together, in one round trip.  Raises StoreError."""
        if not commands:
            return []
        try:
            with self.client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return pipe.execute()
        except (driver.RedisError, OSError) as error:
            raise translate(error, self.where) from error

    def close(self) -> None:
        """Disconnect all connections of this process."""
        self._slot = _Slot()
        self._client = None
        self.pool.disconnect()

    def abandon(self) -> None:
        """See Store.abandon."""
        abandon(self.pool)


class ClusterTransport:
    """Redis Cluster: redis-py sends each call to the node of its slot.  One client per process.

    A node that does not answer is asked twice: redis-py alone would ask it eleven times, for longer than a lease.  If
    no node answers, a call takes longer than DEADLINE, because each of them is asked where the slots are."""

    spans = False

    def __init__(self, make_client: Any, where: str) -> None:
        self._make = make_client
        self.where = where
        self._pid = 0
        self._client: Any = None
        self._lock = threading.Lock()

    @property
    def client(self) -> Any:
        """The cluster client of this process."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client, self._pid = self._make(), os.getpid()
            return self._client

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """See Transport.run."""
        return persist(self.where, self._run, script, keys, args)

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """See Transport.on_one_connection."""
        return list(persist(self.where, self._in_order, key, commands))

    def _in_order(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        pool = self.client.get_redis_connection(self.client.get_node_from_key(key)).connection_pool
        connection = pool.get_connection()
        try:
            return in_order(connection, commands)
        except BaseException:
            connection.disconnect()  # half a reply may be in the socket
            raise
        finally:
            pool.release(connection)

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """See Transport.run_together; one call after the other, because they go to different nodes."""
        replies: list[Any] = []
        for call in calls:
            try:
                replies.append(self.run(*call))
            except StoreUnavailable:
                raise
            except StoreError as error:
                replies.append(error)
        return replies

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        try:
            return self.client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except driver.NoScriptError:
            return self.client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    def blocking(self, timeout: float, *args: Argument) -> Any:
        """See Transport.blocking; CLUSTER_TIMEOUT is longer than the longest wait."""
        return self.command(*args)

    def command(self, *args: Argument) -> Any:
        """See Transport.command."""
        return as_sent(persist(self.where, lambda: self.client.execute_command(*args)))

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """See Transport.pipeline; grouped by node."""
        return list(persist(self.where, self._together, commands)) if commands else []

    def _together(self, commands: Sequence[Sequence[Argument]]) -> Sequence[Any]:
        with self.client.pipeline() as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: Sequence[Any] = pipe.execute()
        return replies

    def server_of(self, key: str) -> str:
        """Return the name of the node that has the key's slot, as of the last call; "" before the first.  Sends
        nothing."""
        try:
            return str(self._client.get_node_from_key(key).name) if self._client is not None else ""
        except driver.SlotNotCoveredError:
            return ""

    def abandon(self) -> None:
        """See Store.abandon."""
        for node in [] if self._client is None else self._client.get_nodes():
            abandon(getattr(node.redis_connection, "connection_pool", None))

    def close(self) -> None:
        """See Transport.close.  The map of slots is kept: reading it again may mean asking a node that does not
        answer."""
        if self._client is not None and self._pid == os.getpid():
            self._client.disconnect_connection_pools()


AnyTransport = Transport | ClusterTransport

__all__ = ["DEADLINE", "AnyTransport", "Argument", "ClusterTransport", "StoreError", "Transport"]
