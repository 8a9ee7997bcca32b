"""One call of one script: how it is sent, how it is sent again after a lost reply, and its errors.

Each thread uses its own connection (thread_connection.py).  redis-py's client is not used for calls because its repeats
(10 by default) know neither our deadline nor which calls may be repeated.  All calls here may be repeated.

Long because a call and its repetition share one connection and its faults.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any

import redis
from redis import exceptions as driver
from redis.sentinel import SentinelConnectionPool

from django_jobs.exceptions import PayloadError, StoreUnavailable
from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing, nobody_listens, translate
from django_jobs.stores.redis.connection.scripts import Argument, Script
from django_jobs.stores.redis.connection.thread_connection import (
    PendingReply,
    SpinWait,
    ThreadConnection,
    abandon,
    close,
    packed,
    packed_call,
    packed_with_source,
)
from django_jobs.stores.redis.connection.waits import Waits

#: Seconds after which a call has ended, with or without success: no try starts later than LAST_TRY.
DEADLINE = 5.0
LAST_TRY = 1.8
#: Seconds between tries: a server that restarts on the same machine is back by then.
PAUSE = 0.05
#: The calls for which a caller other than a worker waits: enqueueing, and what comes before the first enqueue.
URGENT = frozenset({"enqueue", "enqueue_one", "enqueue_plain", "SADD"})
#: The scripts whose answer a process waits for and has nothing else to do.
QUICK = frozenset({"enqueue", "enqueue_one", "enqueue_plain", "reserve"})

Call = tuple[Script, Sequence[str], Sequence[Argument]]


class _Local(threading.local):
    """What belongs to this thread."""

    connection: ThreadConnection | None = None


class Transport:
    """Standalone servers, unix sockets, TLS and Sentinel.  Safe across threads and forks."""

    #: Whether one call may touch keys of several queues.
    spans = True

    def __init__(self, pool: redis.ConnectionPool, where: str) -> None:
        self.pool = pool
        self.where = where
        self._local = _Local()
        self._spin = SpinWait()
        self._waits = Waits(pool)
        self._client: redis.Redis | None = None
        # Behind Sentinel, a server that is gone is replaced within moments.
        self._urgent = frozenset() if isinstance(pool, SentinelConnectionPool) else URGENT

    @property
    def client(self) -> redis.Redis:
        """An ordinary client on the same pool, for plain reads that are not time-critical."""
        client = self._client  # read once: `close` in another thread takes it away
        if client is None:
            client = self._client = redis.Redis(connection_pool=self.pool)
        return client

    def _connection(self) -> ThreadConnection:
        """Return the connection of this thread and process."""
        connection = self._local.connection
        if connection is None or connection.pid != os.getpid():
            if self._spin.pid != os.getpid():
                self._spin = SpinWait()
                abandon(self.pool)  # a thread of the parent may have held the lock of the pool during the fork
            connection = ThreadConnection(self.pool, self.pool.get_connection(), self._spin)
            self._local.connection = connection
        return connection

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run a script, repeated as in `persist`."""
        return persist(self.where, self._run, script, keys, args, urgent=script.name in self._urgent)

    def command(self, *args: Argument) -> Any:
        """Run one plain command that may be sent twice."""
        return persist(self.where, self._command, args, urgent=args[0] in self._urgent)

    def blocking(self, timeout: float, *args: Argument, exact: bool = False) -> Any:
        """Run a command that waits on the server for at most `timeout` seconds.

        `exact`: the server may not add a tenth of a second (waits.py)."""
        return persist(self.where, self._blocking, args, timeout, exact)

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        # Both are kept for the whole call: `close` must not give the connection to another thread.
        local, connection = self._local, self._connection()
        try:
            if connection.broken or connection.owed:
                connection.make_ready()
            connection.send(packed_call(script, keys, args))
            try:
                return connection.receive(soon=script.name in QUICK)
            except driver.NoScriptError:
                return connection.call(packed_with_source(script, keys, args))
        except BaseException as error:
            self._failed(connection, local, error)
            raise

    def run_ahead(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Callable[[], Any]:
        """Send a script, and return a function that waits for its answer as `run` does, to be called once and in this
        process.  The thread may make other calls before.  If the connection is not there, this does all that `run`
        does: a call must not wait until its answer is wanted.  Raises StoreError."""
        local, pending = self._local, PendingReply()
        connection = local.connection
        call: tuple[Any, ...] = (script, keys, args)
        urgent = script.name in self._urgent
        if connection is not None and connection.is_ready and not connection.is_closed():
            try:
                connection.send(packed_call(script, keys, args))
                connection.pending = pending
                take = partial(self._take, local, connection, pending)
                return partial(persist, self.where, take, *call, urgent=urgent)
            except BaseException as error:
                connection.drop()  # half a call may be in the socket
                if not isinstance(error, DRIVER_ERRORS):
                    raise
                call = _in_doubt(call)
        reply = persist(self.where, self._run, *call, urgent=urgent)
        return lambda: reply

    def _take(self, local: _Local, connection: ThreadConnection, pending: PendingReply, *call: Any) -> Any:
        """Return the reply to the call that was sent ahead; after the first time, make the call again."""
        if pending.is_taken:
            return self._run(*call)
        pending.is_taken = True
        if connection.pending is pending:
            connection.read_pending()
        if isinstance(pending.error, driver.NoScriptError):
            return self._run(*call)
        if pending.error is not None:
            if local is not self._local:
                raise self._closed()
            if isinstance(pending.error, driver.ResponseError) and is_passing(pending.error):
                connection.drop()
            try:
                raise pending.error
            finally:
                pending.error = None  # as in ThreadConnection.receive
        return pending.value

    def _command(self, args: Sequence[Argument]) -> Any:
        return self._use(lambda connection: connection.call(packed(*args)))

    def _blocking(self, args: Sequence[Argument], timeout: float, exact: bool) -> Any:
        return self._use(lambda connection: self._waits.run(connection, args, timeout, exact))

    def _use(self, act: Callable[[ThreadConnection], Any]) -> Any:
        """Call a function with the connection of this thread, which is ready, and clean up after an error."""
        local, connection = self._local, self._connection()
        try:
            connection.make_ready()
            return act(connection)
        except BaseException as error:
            self._failed(connection, local, error)
            raise

    def _failed(self, connection: ThreadConnection, local: _Local, error: BaseException) -> None:
        """Disconnect if the next call must not use this connection.

        Raises StoreUnavailable if `close` cut the call off: if the call was repeated, nobody would close the new
        connection."""
        if not isinstance(error, driver.ResponseError):
            connection.drop()  # half a reply may be in the socket, and the next call must not read it
            if local is not self._local:
                raise self._closed()
        elif is_passing(error):  # a demoted or loading server: the next try finds the right one
            connection.drop()

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"The connections to {self.where} were closed during a call.")

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts that may be sent twice, in this order and in one round trip.  If the server refuses one of them,
        a StoreError is returned in its place."""
        replies = persist(self.where, self._together, calls) if calls else []
        return [translate(reply, self.where) if isinstance(reply, Exception) else reply for reply in replies]

    def _together(self, calls: Sequence[Call]) -> list[Any]:
        replies: list[Any] = self._use(lambda connection: _sent_together(connection, calls))
        for i, reply in enumerate(replies):
            if isinstance(reply, driver.NoScriptError):  # somebody has just made the server forget its scripts
                replies[i] = self._run(*calls[i])
        return replies

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run plain commands in this order on one connection to the server that has the key."""
        return list(persist(self.where, self._in_order, commands))

    def _in_order(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        data = b"".join(packed(*command) for command in commands)

        def exchange(connection: ThreadConnection) -> list[Any]:
            connection.send(data, len(commands))
            return [connection.receive() for _ in commands]

        return list(self._use(exchange))

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send plain reads together, in one round trip, repeated as in `persist`.  Raises StoreError."""
        if not commands:
            return []
        return list(persist(self.where, lambda: replies_of(self.client.pipeline(transaction=False), commands)))

    def close(self) -> None:
        """Disconnect all connections of this process."""
        own, self._local = self._local.connection, _Local()
        if own is not None and own.is_idle:  # the traceback of an error may refer to it for long
            own.drop()
        self._client = None
        close(self.pool)

    def abandon(self) -> None:
        """See Store.abandon."""
        abandon(self.pool)


def _sent_together(connection: ThreadConnection, calls: Sequence[Call]) -> list[Any]:
    """Make the calls in one round trip, and return their replies, some of which may be errors.

    Raises an error that may pass: the whole is then sent again."""
    parts = []
    for call in calls:
        # By its hash, a script that the server does not know would run only after those that follow it.
        parts.append((packed_call if call[0].sha in connection.known else packed_with_source)(*call))
        connection.known.add(call[0].sha)
    connection.send(b"".join(parts), len(calls))
    replies = [_reply(connection) for _ in calls]
    for reply in replies:
        if isinstance(reply, Exception) and is_passing(reply):
            try:
                raise reply
            finally:
                del reply, replies  # as in ThreadConnection.receive
    return replies


def _reply(connection: ThreadConnection) -> Any:
    """Return the next reply, which may be an error."""
    try:
        return connection.receive()
    except driver.ResponseError as error:
        return error.with_traceback(None)  # the caller's frame refers to the error


def replies_of(pipe: Any, commands: Sequence[Sequence[Argument]]) -> Any:
    """Send these commands through a pipeline of redis-py, of one server or of a Cluster."""
    with pipe:
        for command in commands:
            pipe.execute_command(*command)
        return pipe.execute()


# -- sending again -----------------------------------------------------------------


def persist(where: str, call: Callable[..., Any], *args: Any, urgent: bool = False) -> Any:
    """Make the call, and repeat it after errors that may pass.  Raises StoreUnavailable within DEADLINE, another
    StoreError, or PayloadError for text that has no encoding.

    `urgent`: the caller can do without the store.  If no server listens, it gets the error at once: nothing was
    sent."""
    started, tried = monotonic(), False
    while True:
        try:
            return call(*args)
        except DRIVER_ERRORS as error:
            refused = urgent and not tried and nobody_listens(error)
            if refused or not is_passing(error) or monotonic() - started > LAST_TRY:
                raise translate(error, where) from error
        except UnicodeEncodeError as error:
            what = f"{error.object!r:.200} has half of a surrogate pair, which UTF-8 cannot hold"
            raise PayloadError(f"{what}: the store can neither keep it nor look for it.") from error
        tried = True
        args = _in_doubt(args)
        sleep(PAUSE)


def _in_doubt(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same call, or calls, for the next try, marked: an earlier request may still be under way (base.py)."""
    match call:
        case ([*calls],):
            return ([_in_doubt(each) for each in calls],)
        case Script(numbered=True) as script, keys, (clock, channel, number, *rest) if not str(number).endswith("+"):
            return script, keys, (clock, channel, f"{number}+", *rest)
    return call
