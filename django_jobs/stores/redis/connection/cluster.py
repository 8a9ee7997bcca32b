"""The same calls as in transport.py, on Redis Cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import exceptions as driver

from django_jobs.exceptions import StoreError, StoreUnavailable
from django_jobs.stores.redis.connection.scripts import Argument, Script
from django_jobs.stores.redis.connection.thread_connection import abandon, close
from django_jobs.stores.redis.connection.transport import Call, Transport, persist, replies_of


class ClusterTransport:
    """Redis Cluster: redis-py sends each call to the node of its slot.  One client per process.

    A node that does not answer is asked twice.  By default, redis-py would ask it eleven times, for longer than a
    lease.  If no node answers, a call takes longer than DEADLINE because redis-py asks each node for the slots."""

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

    def connect(self) -> None:
        """Ask for the nodes, unless they are known.  Raises StoreError."""
        if self._client is None or self._pid != os.getpid():
            self._persist(lambda: self.client)

    def _persist(self, call: Callable[..., Any], *args: Any) -> Any:
        """Do `persist` for a call of redis-py.

        If another thread has found that slots have moved, redis-py closes connections that this thread is using, and
        what it then misses (its reader, its socket) is one of these errors."""

        def whole(*args: Any) -> Any:
            try:
                return call(*args)
            except (AttributeError, TypeError, ValueError) as error:
                raise driver.ConnectionError(f"Another thread has closed the connection ({error}).") from error

        return persist(self.where, whole, *args)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """See Transport.run."""
        return self._persist(self._run, script, keys, args)

    def run_ahead(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Callable[[], Any]:
        """See Transport.run_ahead.  This one waits for the answer because redis-py sends and reads in one step."""
        reply = self.run(script, keys, args)
        return lambda: reply

    def run_on(self, server: str, script: Script, args: Sequence[Argument]) -> Any:
        """Run a script without keys on this node.  Raises StoreError, also for a node that has left."""
        return self._persist(self._run_on, server, script, args)

    def _run_on(self, server: str, script: Script, args: Sequence[Argument]) -> Any:
        node = self.client.get_node(node_name=server)
        if node is None:
            raise driver.ResponseError(f"The Cluster has no node {server} any more.")
        try:
            return self.client.execute_command("EVALSHA", script.sha, 0, *args, target_nodes=node)
        except driver.NoScriptError:
            return self.client.execute_command("EVAL", script.source, 0, *args, target_nodes=node)

    def connection_to(self, server: str) -> redis.Connection:
        """Return a new connection to this node, not connected yet.  Raises KeyError for an unknown node."""
        node = self.client.get_node(node_name=server)
        if node is None:
            raise KeyError(server)
        connection: redis.Connection = self.client.get_redis_connection(node).connection_pool.make_connection()
        return connection

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """See Transport.on_one_connection."""
        return list(self._persist(self._in_order, key, commands))

    def _in_order(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        pool = self.client.get_redis_connection(self.client.get_node_from_key(key)).connection_pool
        connection = pool.get_connection()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            return [connection.read_response() for _ in commands]
        except BaseException:
            connection.disconnect()  # half a reply may be in the socket
            raise
        finally:
            pool.release(connection)

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """See Transport.run_together.  The calls run one after another because they go to different nodes."""
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

    def blocking(self, timeout: float, *args: Argument, exact: bool = False) -> Any:
        """See Transport.blocking; CLUSTER_TIMEOUT is longer than the longest wait.

        `exact` has no effect: only a worker without the right to CLIENT TRACKING uses it."""
        return self.command(*args)

    def command(self, *args: Argument) -> Any:
        """See Transport.command."""
        return _as_sent(self._persist(lambda: self.client.execute_command(*args)))

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """See Transport.pipeline; grouped by node."""
        if not commands:
            return []
        return list(self._persist(lambda: replies_of(self.client.pipeline(), commands)))

    def server_of(self, key: str) -> str:
        """Return the name of the node that had the key's slot at the last call; "" before the first call.  Sends
        nothing."""
        try:
            return str(self._client.get_node_from_key(key).name) if self._client is not None else ""
        except driver.SlotNotCoveredError:
            return ""

    def abandon(self) -> None:
        """See Store.abandon."""
        for pool in self._pools():
            abandon(pool)

    def _pools(self) -> list[redis.ConnectionPool]:
        nodes = [] if self._client is None else self._client.get_nodes()
        return [node.redis_connection.connection_pool for node in nodes if node.redis_connection is not None]

    def close(self) -> None:
        """See Transport.close.  The map of slots is kept because a node that must be asked for it may not answer."""
        if self._client is not None and self._pid == os.getpid():
            for pool in self._pools():
                close(pool)


def _as_sent(reply: Any) -> Any:
    """Undo the Cluster client's conversions (HGETALL and HSCAN to dicts, scores to pairs): return flat lists."""
    if isinstance(reply, dict) and all(isinstance(key, bytes) for key in reply):
        return [part for pair in reply.items() for part in pair]
    if isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[1], (dict, list)):
        return reply[0], _as_sent(reply[1])
    if isinstance(reply, list) and reply and isinstance(reply[0], tuple):
        return [part for pair in reply for part in pair]
    return reply


AnyTransport = Transport | ClusterTransport
