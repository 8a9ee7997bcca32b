"""The connection of a thread: it sends packed calls and reads their replies with hiredis.

redis-py opens the connection: address, TLS, user, Sentinel, handshake.  After that, a call needs one write and one read
of the socket.  redis-py's own layers would make a call three times as expensive.

Long because each line must know what was sent, what is still to be read, and who waits for it.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from types import BuiltinFunctionType
from typing import Any

import hiredis
import redis
from redis import exceptions as driver

from django_jobs.stores.redis.connection.scripts import Argument, Script

#: Bytes that are read at once, as in redis-py.
READ = 65_536
#: Seconds.  A call spins for at most this long before it sleeps.  A server on the same machine needs 40 to 90 µs for
#: one job.  Where it needs 90 µs, a limit of 100 µs makes a call 10 to 30 % slower than a limit of 200 to 500 µs.
LONGEST_SPIN = 0.000_3
#: After a spin in vain, this many calls do not spin.  Each further spin in vain doubles the number, up to MOST_SKIPPED.
FIRST_SKIPPED, MOST_SKIPPED = 4, 1024

NOT_ENOUGH_DATA = object()

#: Waits at most this many milliseconds until the socket can be read.  Returns a true value if it can.
Poll = Callable[[int], Any]


class SpinWait:
    """Decides whether a call polls the socket for its reply before it sleeps.  One object per process and store.

    On a virtual machine, a sleep and a wake-up take 35 to 70 µs.  A server on the same machine needs as long for its
    reply, and polling for that time costs no more CPU than the sleep.  If the server is far away or busy, or waits for
    the only CPU, its replies come later: then fewer and fewer calls spin.  No call spins while another thread waits for
    a reply, because that thread needs the interpreter."""

    __slots__ = ("_skip", "_skipped_before", "pid", "waiting")

    def __init__(self) -> None:
        self.pid = os.getpid()
        #: The connections on which a reply is expected soon.
        self.waiting: set[ThreadConnection] = set()
        # There is no lock: after a race, one call spins that should not, or the reverse.
        self._skip = self._skipped_before = 0

    def spin(self, poll: Poll) -> None:
        """Return when the reply is there, or after LONGEST_SPIN; at once if the reply is expected later than that."""
        waiting = self.waiting
        if len(waiting) > 1:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        until = perf_counter() + LONGEST_SPIN
        while not poll(0):
            if len(waiting) > 1:
                return
            if perf_counter() > until:
                self._skip = self._skipped_before = min(2 * self._skipped_before or FIRST_SKIPPED, MOST_SKIPPED)
                return
        self._skipped_before = 0


class PendingReply:
    """The reply to a call that was sent ahead: not read yet, or read for a caller who has not asked for it yet."""

    __slots__ = ("error", "is_taken", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        #: The caller has asked for the reply.
        self.is_taken = False

    def resolve(self, value: Any, error: Exception | None) -> None:
        """Keep the reply, or the error that came instead."""
        # The traceback is removed because one of its frames refers to this object.
        self.value, self.error = value, error and error.with_traceback(None)


class ThreadConnection:
    """A connection that one thread of one process uses.  It returns to the pool when the thread ends."""

    def __init__(self, pool: redis.ConnectionPool, raw: redis.Connection, spin: SpinWait) -> None:
        self.pid = os.getpid()
        #: `raw` is redis-py's connection, taken from the pool.
        self._pool, self.raw, self._spin = pool, raw, spin
        #: The socket to which `_reader` and `_poll` belong.
        self._sock: Any = None
        self._reader: Any = None
        self._poll: Poll | None = None
        self._buffer = bytearray()
        self.broken = False
        #: The number of replies that were not read whole, even if the call was interrupted.
        self.owed = 0
        #: The reply that comes before the reply to the next call.
        self.pending: PendingReply | None = None
        #: The hashes of the scripts that the server knows.
        self.known: set[bytes] = set()
        #: The server's CLIENT ID for this connection; None if it was not asked.
        self.client_id: int | None = None

    def call(self, data: bytes) -> Any:
        """Send one packed command and return its reply.  Raises redis-py's errors."""
        self.send(data)
        return self.receive()

    def send(self, data: bytes, replies: int = 1) -> None:
        """Send packed commands, which have this many replies.  Connects if necessary.  Raises redis-py's errors."""
        raw = self.raw
        sock = raw._sock
        if sock is None or sock is not self._sock:
            self._attach()
        elif raw.health_check_interval and not self.owed:
            self.owed = 1  # counted until redis-py has read the reply to its PING
            raw.check_health()
            self.owed = 0
        self.owed += replies
        self.write(data)

    def receive(self, *, soon: bool = False, timeout: float | None = None) -> Any:
        """Return the next reply.  Raises redis-py's errors; after any but a ResponseError, `drop` must follow.

        `soon`: the reply is expected at once, and the thread has nothing else to do.  `timeout`: wait for this many
        seconds instead of the `socket_timeout`; after a TimeoutError you may call again for the same reply."""
        if soon and self._poll is not None:
            waiting = self._spin.waiting
            waiting.add(self)
            try:
                self._spin.spin(self._poll)
                reply = self._read()
            finally:
                waiting.discard(self)
        elif timeout is not None:
            self._sock.settimeout(max(timeout, 0.001))  # 0 would mean: do not wait
            try:
                reply = self._read()
            finally:
                self._sock.settimeout(self.raw.socket_timeout)
        else:
            reply = self._read()
        self.owed -= 1
        if isinstance(reply, Exception):
            try:
                raise reply
            finally:
                del reply  # the error refers to this frame; a reference back would keep the connection alive
        return reply

    @property
    def is_ready(self) -> bool:
        """Whether this process may send a call at once: no, after a call that was interrupted before its reply."""
        return not (self.broken or self.owed) and self.pid == os.getpid()

    @property
    def is_idle(self) -> bool:
        """Whether it is connected and no call uses it."""
        return self.is_ready and self._sock is not None and self._sock is self.raw._sock

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection, or sent unexpected data.  False if that is unknown."""
        return self._poll is not None and bool(self._poll(0))

    def make_ready(self) -> None:
        """Read the pending reply, and connect again after `drop`: then a call may be sent.

        Sending would also connect, but only this asks Sentinel for a new address.  Raises redis-py's errors."""
        if not self.broken and self.pending is not None and self.owed == 1:
            self.read_pending()
            if self.broken:  # the next call fails, too, because this wait has used up its time
                raise driver.ConnectionError("The connection was lost before this call was sent.")
        if not self.is_ready:
            self.drop()
            self.raw.connect()
            self.broken = False

    def read_pending(self) -> None:
        """Read the pending reply, or keep the error that came instead.  Raises none of redis-py's errors."""
        pending, self.pending = self.pending, None
        assert pending is not None
        try:
            pending.resolve(self.receive(), None)
        except driver.ResponseError as error:
            pending.resolve(None, error)
        except (driver.RedisError, OSError) as error:
            self.drop()
            pending.resolve(None, error)
        except BaseException:
            self.drop()
            pending.resolve(None, driver.ConnectionError("The call was interrupted."))
            raise

    def drop(self) -> None:
        """Disconnect: the next call uses a new socket."""
        self.broken = True
        if self.pending is not None:
            self.pending.resolve(None, driver.ConnectionError("The connection was closed before the reply."))
            self.pending = None
        self.known.clear()
        self.client_id = None
        self.raw.disconnect()
        self.owed = 0

    def release(self) -> None:
        """Give the connection back to the pool, once and only in the process that took it."""
        if self.pid == os.getpid():
            self.pid = 0
            if self.owed:  # the next thread must not read these replies
                self.raw.disconnect()
            self._pool.release(self.raw)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the end of the interpreter, modules may be gone already, for example after `gc.freeze()`.
        if not is_ending():
            self.release()

    def _attach(self) -> None:
        """Connect if necessary, and read from the new socket with a new reader."""
        raw: Any = self.raw
        if raw._sock is None:
            raw.connect()
        self._sock = raw._sock
        self._reader = hiredis.Reader(
            protocolError=driver.InvalidResponse, replyError=raw._parser.parse_error, notEnoughData=NOT_ENOUGH_DATA
        )
        # redis-py's buffer of 64 KB is used because it is free between redis-py's own calls.
        self._buffer = getattr(raw._parser, "_buffer", None) or bytearray(READ)
        self._poll = _poll_of(self._sock)

    def write(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise driver.TimeoutError("Timeout writing to socket") from None
        except OSError as error:
            raise driver.ConnectionError(f"Error {error.errno} while writing to socket. {error.strerror}.") from error

    def _read(self) -> Any:
        sock, reader = self._sock, self._reader
        reply = reader.gets()
        while reply is NOT_ENOUGH_DATA:
            try:
                size = sock.recv_into(self._buffer)
            except TimeoutError:
                raise driver.TimeoutError(f"Timeout reading from {self._peer()}") from None
            except OSError as error:
                raise driver.ConnectionError(f"Error while reading from {self._peer()} : {error.args}") from error
            if size == 0:
                raise driver.ConnectionError("Connection closed by server.")
            reader.feed(self._buffer, 0, size)
            reply = reader.gets()
        return reply

    def _peer(self) -> str:
        raw: Any = self.raw
        return getattr(raw, "path", None) or f"{raw.host}:{raw.port}"


def _poll_of(sock: Any) -> Poll | None:
    """Return the function that tells whether the socket can be read.  None if there is none, or only gevent's, which
    would run other greenlets instead."""
    make = getattr(select, "poll", None)
    if not isinstance(make, BuiltinFunctionType):
        return None
    poll: Any = make()
    poll.register(sock, select.POLLIN)
    found: Poll = poll.poll
    return found


def close(pool: Any) -> None:
    """Close the idle connections of a pool, and cut those that threads are using: each then gets a ConnectionError.

    `pool.disconnect()` would take the sockets from under redis-py's feet: while another thread connects, what it then
    misses is an AttributeError, a TypeError or a ValueError."""
    pool._checkpid()  # a copy of the process forgets the connections of its parent
    if (in_use := getattr(pool, "_in_use_connections", None)) is not None:
        pool.disconnect(inuse_connections=False)
    for connection in list(pool._connections if in_use is None else in_use):  # None: a BlockingConnectionPool
        if (sock := connection._sock) is not None:
            with suppress(OSError):  # the other side has closed it
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own way would end as `disconnect` does


def abandon(pool: Any) -> None:
    """Close the sockets in a forked process.  The pool's methods may wait for a lock of a thread of the parent."""
    connections = {c for name in ("_available_connections", "_in_use_connections") for c in getattr(pool, name, ())}
    for connection in connections:
        if (sock := getattr(connection, "_sock", None)) is not None:
            os.close(sock.detach())
    if hasattr(pool, "_lock"):
        pool._lock = threading.RLock()


# -- packing -----------------------------------------------------------------------

#: How many beginnings of calls are kept; each takes about 1.5 kB.  A call with more than MOST_KEYS keys reads many
#: queues at once.  It is too rare and too long to keep.
KEPT = 512
MOST_KEYS = 64


def packed(*args: Argument) -> bytes:
    """Return one command as it is sent to the server."""
    data: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # its types say a tuple of one
    return data


def packed_call(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVALSHA with this script, these keys and these arguments, as it is sent to the server.

    The part up to the last key is the same for all calls with the same keys.  It is kept because packing 40 keys takes
    25 µs, a quarter of the CPU time of a claim."""
    rest: bytes = hiredis.pack_command(tuple(args))  # type: ignore[arg-type]
    begin = _beginning if len(keys) <= MOST_KEYS else _beginning.__wrapped__
    return b"*%d\r\n%b%b" % (3 + len(keys) + len(args), begin(script.sha, tuple(keys)), _without_count(rest))


def packed_with_source(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """Return EVAL with the source of the script: a server that does not know the script keeps it."""
    return packed(b"EVAL", script.source, len(keys), *keys, *args)


@lru_cache(KEPT)
def _beginning(sha: bytes, keys: tuple[str, ...]) -> bytes:
    return _without_count(packed(b"EVALSHA", sha, len(keys), *keys))


def _without_count(command: bytes) -> bytes:
    """Return a packed command without its first line, the number of its arguments."""
    return command[command.index(b"\n") + 1 :]
