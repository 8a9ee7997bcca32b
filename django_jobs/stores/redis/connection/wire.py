"""The connection of a thread.  Calls are packed and go over it without redis-py's layers in between.

redis-py makes the connection: the address, TLS, the user, Sentinel, the handshake.  After that, a call needs one write
and one read of the socket, and hiredis.

Long because what was sent, what is still to be read, and by whom must agree at each line.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from types import BuiltinFunctionType
from typing import Any

import redis
from redis import exceptions as driver

from django_jobs.stores.redis.connection.replies import Argument
from django_jobs.stores.redis.connection.scripts import Script

#: Packs a command; None: hiredis is not installed, and redis-py packs, sends and reads.
pack_command: Callable[[tuple[Argument, ...]], bytes] | None = None
with suppress(ImportError):
    import hiredis
    from hiredis import pack_command  # type: ignore[assignment]  # its types say a tuple of one

#: Bytes that are read at once, as in redis-py.
READ = 65_536
#: For so many seconds a call looks whether its reply is there before it sleeps.  A server on the same machine takes 40
#: to 90 µs for one job.  Where it takes 90, a bound of 100 µs costs a call 10 to 30 % more than one of 200 to 500.
LONGEST_LOOK = 0.000_3
#: After a look in vain, this many calls do not look; after each further one twice as many, up to MOST_SKIPPED.
FIRST_SKIPPED, MOST_SKIPPED = 4, 1024

_MISSING = object()

#: Waits at most so many milliseconds until the socket can be read; returns a true value if it can.
Poll = Callable[[int], Any]


class Looking:
    """Decides whether a call looks for its reply before it sleeps until the reply is there.  One per process and store.

    On a virtual machine, falling asleep and being woken takes 35 to 70 µs.  That is as long as a server on the same
    machine takes for the reply, and costs as much processor time as looking for it.  A server that is far away or busy
    answers later, and so does one that needs the only processor: looking is then left out for more and more calls.  It
    is also left out while other threads wait for replies, because they need the interpreter."""

    __slots__ = ("_skip", "_skipped_before", "pid", "waiting")

    def __init__(self) -> None:
        self.pid = os.getpid()
        #: the connections over which a reply is expected soon.
        self.waiting: set[Wire] = set()
        # Not locked: if two threads change them at the same time, one call looks that should not, or the reverse.
        self._skip = self._skipped_before = 0

    def look(self, poll: Poll) -> None:
        """Return when the reply is there, or after LONGEST_LOOK; at once if it is not expected within that time."""
        waiting = self.waiting
        if len(waiting) > 1:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        until = perf_counter() + LONGEST_LOOK
        while not poll(0):
            if len(waiting) > 1:
                return
            if perf_counter() > until:
                self._skip = self._skipped_before = min(2 * self._skipped_before or FIRST_SKIPPED, MOST_SKIPPED)
                return
        self._skipped_before = 0


class Pending:
    """A call that was sent, whose reply is not read yet."""

    __slots__ = ("error", "is_taken", "reply")

    def __init__(self) -> None:
        self.reply: Any = None
        self.error: Exception | None = None
        #: its caller has asked for the reply.
        self.is_taken = False

    def came(self, reply: Any, error: Exception | None) -> None:
        """The reply was read, or this error came instead of it."""
        # Without the frames in which it was raised: one of them knows this object.
        self.reply, self.error = reply, error and error.with_traceback(None)


class Held:
    """The connection of a thread, of one process.  It returns to the pool when the thread ends."""

    def __init__(self, pool: redis.ConnectionPool, connection: redis.Connection, looking: Looking) -> None:
        self.pid = os.getpid()
        self.pool, self.connection, self.wire = pool, connection, Wire(connection, looking)
        self.broken = False
        #: the call whose reply comes before that of the next call.
        self.pending: Pending | None = None
        #: the hashes of scripts that the server at the other end knows.
        self.known: set[bytes] = set()
        #: the number that the server has given to this connection, if it was asked.
        self.number: int | None = None

    @property
    def is_ready(self) -> bool:
        """May a call be sent at once?  Not if a call was interrupted: its reply may come at any time."""
        return not (self.broken or self.wire.owed)

    def make_ready(self) -> None:
        """Read the reply that is pending, and connect again after `drop`: then a call may be sent.

        Sending would also connect, but only this asks Sentinel for a new address.  Raises redis-py's errors."""
        if not self.broken and self.pending is not None and self.wire.owed == 1:
            self.read_pending()
            if self.broken:  # here, too: the caller's call counts the time that this took
                raise driver.ConnectionError("The connection was lost before this call was sent.")
        if not self.is_ready:
            self.drop()
            self.connection.connect()
            self.broken = False

    def read_pending(self) -> None:
        """Read the reply that is pending, or what happens instead.  Raises none of redis-py's errors."""
        sent, self.pending = self.pending, None
        assert sent is not None
        try:
            sent.came(self.wire.receive(), None)
        except driver.ResponseError as error:
            sent.came(None, error)
        except (driver.RedisError, OSError) as error:
            self.drop()
            sent.came(None, error)
        except BaseException:
            self.drop()
            sent.came(None, driver.ConnectionError("The call was interrupted."))
            raise

    def drop(self) -> None:
        """Disconnect, so that the next call begins on a new socket."""
        self.broken = True
        if self.pending is not None:
            self.pending.came(None, driver.ConnectionError("The connection was closed before the reply."))
            self.pending = None
        self.known.clear()
        self.number = None
        self.connection.disconnect()
        self.wire.owed = 0

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, modules may be gone already: after `gc.freeze()` for example.
        if not is_ending() and self.pid == os.getpid():
            if self.wire.owed:  # the next thread must not read these replies
                self.connection.disconnect()
            self.pool.release(self.connection)


class Wire:
    """One connection, used by one thread at a time.  Each call is one `send` and one `receive`."""

    __slots__ = ("_buffer", "_connection", "_looking", "_poll", "_reader", "_sock", "owed")

    def __init__(self, connection: redis.Connection, looking: Looking) -> None:
        self._connection, self._looking = connection, looking
        #: the socket to which the other fields belong; None: redis-py sends and reads.
        self._sock: Any = None
        self._reader: Any = None
        self._poll: Poll | None = None
        self._buffer = bytearray()
        #: how many replies have not been read whole, even if something has interrupted the call.
        self.owed = 0

    def send(self, data: bytes, replies: int = 1) -> None:
        """Send packed commands, which have so many replies.  Connects if necessary.  Raises redis-py's errors."""
        sock = self._connection._sock
        may_write = (sock is not None and sock is self._sock) or self._attach()
        self.owed += replies
        if may_write:
            self.write(data)
        else:
            self._connection.send_packed_command([data])

    def is_closed(self) -> bool:
        """Has the server closed the connection, or sent what nobody waits for?  False if that is not known."""
        return self._sock is not None and self._poll is not None and bool(self._poll(0))

    def write(self, data: bytes) -> None:
        """Write these bytes into the socket.  Raises redis-py's errors."""
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise driver.TimeoutError("Timeout writing to socket") from None
        except OSError as error:
            raise driver.ConnectionError(f"Error {error.errno} while writing to socket. {error.strerror}.") from error

    def receive(self, *, soon: bool = False) -> Any:
        """Return the next reply.  `soon`: it is expected at once, and the thread has nothing else to do.

        Raises redis-py's errors.  After any other than a ResponseError, the rest of a reply may be in the socket."""
        if self._sock is None:
            reply = self._read_by_redis_py()
        elif not soon or self._poll is None:
            reply = self._read()
        else:
            waiting = self._looking.waiting
            waiting.add(self)
            try:
                self._looking.look(self._poll)
                reply = self._read()
            finally:
                waiting.discard(self)
        self.owed -= 1
        if isinstance(reply, Exception):
            try:
                raise reply
            finally:
                del reply  # an error knows this frame: if the frame knew the error, both would keep the connection
        return reply

    def _read_by_redis_py(self) -> Any:
        try:
            return self._connection.read_response()
        except driver.ResponseError as error:
            return error

    def _read(self) -> Any:
        sock, reader = self._sock, self._reader
        reply = reader.gets()
        while reply is _MISSING:
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

    def _attach(self) -> bool:
        """Connect if necessary.  Return whether this object may use the socket: hiredis is installed, and redis-py has
        nothing to do between calls (`health_check_interval`)."""
        connection = self._connection
        if connection._sock is None:
            connection.connect()
        parser: Any = connection._parser
        parse_error = getattr(parser, "parse_error", None)
        if parse_error is None or connection.health_check_interval or pack_command is None:
            self._sock = None
            return False
        self._sock = connection._sock
        self._reader = hiredis.Reader(
            protocolError=driver.InvalidResponse, replyError=parse_error, notEnoughData=_MISSING
        )
        # Two buffers of 64 KB for each thread would be one too many.
        theirs = getattr(parser, "_buffer", None)
        self._buffer = theirs if isinstance(theirs, bytearray) and theirs else bytearray(READ)
        self._poll = _poll_of(self._sock)
        return True

    def _peer(self) -> str:
        connection: Any = self._connection
        return getattr(connection, "path", None) or f"{connection.host}:{connection.port}"


def _poll_of(sock: Any) -> Poll | None:
    """Return the function that tells whether the socket can be read.  None: the system has none, or it is gevent's,
    which lets other greenlets run instead of looking."""
    make = getattr(select, "poll", None)
    if not isinstance(make, BuiltinFunctionType):
        return None
    poll: Any = make()
    poll.register(sock, select.POLLIN)
    found: Poll = poll.poll
    return found


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
