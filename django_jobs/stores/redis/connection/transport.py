"""One call of one script: packing, sending, sending again after a lost reply, and the errors.

Each thread uses its connection directly: a call through redis-py's client costs three times as much, and its repeats
(10 times by default) know neither our deadline nor which calls may be repeated.  All calls here may be repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import monotonic, sleep
from typing import Any

import redis
from redis import exceptions as driver
from redis.sentinel import SentinelConnectionPool

from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing, nobody_listens, translate
from django_jobs.stores.redis.connection.replies import Argument, abandon, in_order, read_reply
from django_jobs.stores.redis.connection.scripts import Script

#: Packs a command; None: redis-py does it.
pack_command: Callable[[tuple[Argument, ...]], bytes] | None = None
with suppress(ImportError):
    from hiredis import pack_command  # type: ignore[assignment]  # its types say a tuple of one

#: Seconds after which a call has ended, with or without success: no try starts later than LAST_TRY.
DEADLINE = 5.0
LAST_TRY = 1.8
#: Seconds between tries: a server that restarts on the same machine is back by then.
PAUSE = 0.05
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
        #: the hashes of scripts that the server at the other end knows.
        self.known: set[bytes] = set()

    def mend(self) -> None:
        """Connect again after `drop`.  Sending would also reconnect, but only this asks Sentinel for a new address."""
        if self.broken:
            self.connection.connect()
            self.broken = False

    def drop(self) -> None:
        """Disconnect, so that the next call begins on a new socket."""
        self.broken = True
        self.known.clear()
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
        client = self._client  # read once: `close` in another thread takes it away
        if client is None:
            client = self._client = redis.Redis(connection_pool=self.pool)
        return client

    def _held(self) -> _Held:
        held = self._slot.held
        if held is None or held.pid != os.getpid():
            held = self._slot.held = _Held(self.pool, self.pool.get_connection())
        return held

    def _drop(self, held: _Held, slot: _Slot) -> None:
        """Disconnect after an error.  A call that `close` cut off is not repeated: nobody would close what it opens.

        Raises StoreUnavailable then."""
        held.drop()
        if slot is not self._slot:
            raise StoreUnavailable(f"The connections to {self.where} were closed during a call.")

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
        # Kept for the whole call: `close` must not give its connection to another thread.
        slot, held = self._slot, self._held()
        connection = held.connection
        try:
            held.mend()
            if script is None:
                connection.send_command(*args)
                # A timeout of its own: that of all other reads may be shorter (`?socket_timeout=1`).
                if wait and not connection.can_read(wait):
                    raise driver.TimeoutError(f"no answer after {wait:g} s")
                return connection.read_response()
            connection.send_packed_command([packed(connection, script, keys, args)])
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
            self._drop(held, slot)  # half a reply may be in the socket, and the next call must not read it
            raise

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts that may be sent twice, in this order and in one round trip.  If the server refuses one of them,
        a StoreError is returned in its place."""
        replies = persist(self.where, self._together, calls) if calls else []
        return [translate(reply, self.where) if isinstance(reply, Exception) else reply for reply in replies]

    def _together(self, calls: Sequence[Call]) -> list[Any]:
        slot, held = self._slot, self._held()
        connection = held.connection
        try:
            held.mend()
            parts = []
            for call in calls:
                # By its hash, a script that the server does not know would run only after those that follow it.
                parts.append((packed if call[0].sha in held.known else packed_whole)(connection, *call))
                held.known.add(call[0].sha)
            connection.send_packed_command([b"".join(parts)])
            replies = [read_reply(connection) for _ in calls]
        except BaseException:
            self._drop(held, slot)
            raise
        for i, reply in enumerate(replies):
            if isinstance(reply, driver.NoScriptError):  # somebody has just made the server forget its scripts
                replies[i] = self._once(*calls[i])
            elif isinstance(reply, Exception) and is_passing(reply):
                held.drop()
                raise reply
        return replies

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run plain commands in this order on one connection to the server that has the key."""
        return list(persist(self.where, self._in_order, commands))

    def _in_order(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        slot, held = self._slot, self._held()
        try:
            held.mend()
            return in_order(held.connection, commands)
        except BaseException:
            self._drop(held, slot)
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


# -- packing -----------------------------------------------------------------------

#: The beginnings of this many calls are kept, about 1.5 kB each.  Calls with more keys than MOST_KEYS, over many queues
#: at once, are too rare and too long to be kept.
KEPT = 512
MOST_KEYS = 64


def packed(connection: redis.Connection, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVALSHA with this script, these keys and these arguments, as it is sent to the server.

    Up to the last key it is the same for each call with the same keys, and kept: packing 40 keys again costs 25 µs, a
    quarter of the processor time of a claim."""
    if pack_command is None:
        return b"".join(connection.pack_command(b"EVALSHA", script.sha, len(keys), *keys, *args))
    rest = pack_command(tuple(args))
    begin = _beginning if len(keys) <= MOST_KEYS else _beginning.__wrapped__
    return b"*%d\r\n%b%b" % (3 + len(keys) + len(args), begin(script.sha, tuple(keys)), _without_count(rest))


def packed_whole(connection: redis.Connection, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVAL with the whole script, these keys and these arguments: a server that does not know it keeps it."""
    return b"".join(connection.pack_command(b"EVAL", script.source, len(keys), *keys, *args))


@lru_cache(KEPT)
def _beginning(sha: bytes, keys: tuple[str, ...]) -> bytes:
    assert pack_command is not None
    return _without_count(pack_command((b"EVALSHA", sha, len(keys), *keys)))


def _without_count(command: bytes) -> bytes:
    """Return a packed command without its first line, the number of its arguments."""
    return command[command.index(b"\n") + 1 :]


# -- sending again -----------------------------------------------------------------


def persist(where: str, call: Callable[..., Any], *args: Any, urgent: bool = False) -> Any:
    """Make the call, and repeat it after errors that may pass.  Raises StoreUnavailable within DEADLINE, or another
    StoreError.

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
