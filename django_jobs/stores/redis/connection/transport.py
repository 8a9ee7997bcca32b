"""One call of one script: sending it, sending it again after a lost reply, and the errors.

Each thread uses its connection directly (wire.py).  A call through redis-py's client costs three times as much, and its
repeats (10 by default) know neither our deadline nor which calls may be repeated.  All calls here may be repeated.
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

from django_jobs.exceptions import StoreUnavailable
from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing, nobody_listens, translate
from django_jobs.stores.redis.connection.replies import Argument, abandon, in_order
from django_jobs.stores.redis.connection.scripts import Script
from django_jobs.stores.redis.connection.waits import Waits
from django_jobs.stores.redis.connection.wire import Held, Looking, Pending, Wire, packed, packed_whole

#: Seconds after which a call has ended, with or without success: no try starts later than LAST_TRY.
DEADLINE = 5.0
LAST_TRY = 1.8
#: Seconds between tries: a server that restarts on the same machine is back by then.
PAUSE = 0.05
#: The calls for which a caller other than a worker waits: enqueueing, and what comes before the first enqueue.
URGENT = frozenset({"enqueue", "enqueue_one", "enqueue_plain", "SADD"})
#: The scripts whose answer a process waits for and has nothing else to do.
QUICK = frozenset({"enqueue", "enqueue_one", "enqueue_plain"})

Call = tuple[Script, Sequence[str], Sequence[Argument]]


class _Slot(threading.local):
    """The connection of this thread."""

    held: Held | None = None


class Transport:
    """Standalone servers, unix sockets, TLS and Sentinel.  Safe across threads and forks."""

    #: Whether one call may touch keys of several queues.
    spans = True

    def __init__(self, pool: redis.ConnectionPool, where: str) -> None:
        self.pool = pool
        self.where = where
        self._slot = _Slot()
        self._looking = Looking()
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

    def _held(self) -> Held:
        held = self._slot.held
        if held is None or held.pid != os.getpid():
            if self._looking.pid != os.getpid():
                self._looking = Looking()
                abandon(self.pool)  # a thread of the parent may have held the lock of the pool during the fork
            held = self._slot.held = Held(self.pool, self.pool.get_connection(), self._looking)
        return held

    def _drop(self, held: Held, slot: _Slot) -> None:
        """Disconnect after an error.  A call that `close` cut off is not repeated: nobody would close what it opens.

        Raises StoreUnavailable then."""
        held.drop()
        if slot is not self._slot:
            raise self._closed()

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"The connections to {self.where} were closed during a call.")

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run a script, repeated as in `persist`."""
        return persist(self.where, self._run, script, keys, args, urgent=script.name in self._urgent)

    def command(self, *args: Argument) -> Any:
        """Run one plain command that may be sent twice."""
        return persist(self.where, self._command, args, urgent=args[0] in self._urgent)

    def blocking(self, timeout: float, *args: Argument, exact: bool = False) -> Any:
        """Run a command that waits on the server for `timeout` seconds at most.  `exact`: no tenth of a second longer
        (waits.py)."""
        return persist(self.where, self._blocking, args, timeout, exact)

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        # Kept for the whole call: `close` must not give its connection to another thread.
        slot, held = self._slot, self._held()
        wire = held.wire
        try:
            if held.broken or wire.owed:
                held.make_ready()
            wire.send(packed(held.connection, script, keys, args))
            try:
                return wire.receive(soon=script.name in QUICK)
            except driver.NoScriptError:
                wire.send(packed_whole(held.connection, script, keys, args))
                return wire.receive()
        except BaseException as error:
            self._failed(held, slot, error)
            raise

    def run_ahead(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Callable[[], Any]:
        """Send a script, and return a function that waits for its answer as `run` does, to be called once and in this
        process.  The thread may make other calls before.  If the connection is not there, this does all that `run`
        does: a call must not wait until its answer is wanted.  Raises StoreError."""
        slot, sent = self._slot, Pending()
        held = slot.held
        call: tuple[Any, ...] = (script, keys, args)
        urgent = script.name in self._urgent
        if held is not None and held.pid == os.getpid() and held.is_ready and not held.wire.is_closed():
            try:
                held.wire.send(packed(held.connection, script, keys, args))
                held.pending = sent
                return partial(persist, self.where, partial(self._take, slot, held, sent), *call, urgent=urgent)
            except BaseException as error:
                held.drop()  # half a call may be in the socket
                if not isinstance(error, DRIVER_ERRORS):
                    raise
                call = _in_doubt(call)
        reply = persist(self.where, self._run, *call, urgent=urgent)
        return lambda: reply

    def _take(
        self, slot: _Slot, held: Held, sent: Pending, script: Script, keys: Sequence[str], args: Sequence[Argument]
    ) -> Any:
        """Return the answer to what was sent; if that was taken before, call again."""
        if sent.is_taken:
            return self._run(script, keys, args)
        sent.is_taken = True
        if held.pending is sent:
            held.read_pending()
        if isinstance(sent.error, driver.NoScriptError):
            return self._run(script, keys, args)
        if sent.error is not None:
            if slot is not self._slot:
                raise self._closed()
            if isinstance(sent.error, driver.ResponseError) and is_passing(sent.error):
                held.drop()
            try:
                raise sent.error
            finally:
                sent.error = None  # as in Wire.receive
        return sent.reply

    def _command(self, args: Sequence[Argument]) -> Any:
        slot, held = self._slot, self._held()
        try:
            held.make_ready()
            held.connection.send_command(*args)
            return held.connection.read_response()
        except BaseException as error:
            self._failed(held, slot, error)
            raise

    def _blocking(self, args: Sequence[Argument], timeout: float, exact: bool) -> Any:
        slot, held = self._slot, self._held()
        try:
            held.make_ready()
            return self._waits.run(held, args, timeout, exact)
        except BaseException as error:
            self._failed(held, slot, error)
            raise

    def _failed(self, held: Held, slot: _Slot, error: BaseException) -> None:
        if not isinstance(error, driver.ResponseError):
            self._drop(held, slot)  # half a reply may be in the socket, and the next call must not read it
        elif is_passing(error):  # a demoted or loading server: the next try finds the right one
            held.drop()

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts that may be sent twice, in this order and in one round trip.  If the server refuses one of them,
        a StoreError is returned in its place."""
        replies = persist(self.where, self._together, calls) if calls else []
        return [translate(reply, self.where) if isinstance(reply, Exception) else reply for reply in replies]

    def _together(self, calls: Sequence[Call]) -> list[Any]:
        slot, held = self._slot, self._held()
        try:
            held.make_ready()
            parts = []
            for call in calls:
                # By its hash, a script that the server does not know would run only after those that follow it.
                parts.append((packed if call[0].sha in held.known else packed_whole)(held.connection, *call))
                held.known.add(call[0].sha)
            held.wire.send(b"".join(parts), len(calls))
            replies = [_reply(held.wire) for _ in calls]
        except BaseException:
            self._drop(held, slot)
            raise
        for i, reply in enumerate(replies):
            if isinstance(reply, driver.NoScriptError):  # somebody has just made the server forget its scripts
                replies[i] = self._run(*calls[i])
            elif isinstance(reply, Exception) and is_passing(reply):
                held.drop()
                try:
                    raise reply
                finally:
                    del reply, replies  # as in Wire.receive
        return replies

    def on_one_connection(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run plain commands in this order on one connection to the server that has the key."""
        return list(persist(self.where, self._in_order, commands))

    def _in_order(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        slot, held = self._slot, self._held()
        try:
            held.make_ready()
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


def _reply(wire: Wire) -> Any:
    """Return the next reply, which may be an error."""
    try:
        return wire.receive()
    except driver.ResponseError as error:
        return error.with_traceback(None)  # the caller's frame knows the error


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
