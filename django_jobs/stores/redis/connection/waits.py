"""Commands that wait on the server, and end on time.

A server looks `hz` times per second which waits are over: ten times, unless redis.conf says otherwise.  If nothing else
happens on the server, a job that is due would start up to a tenth of a second late for that reason alone.  The client
therefore watches the clock, and ends a wait that must be exact with CLIENT UNBLOCK over another connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from redis import exceptions as driver

from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing
from django_jobs.stores.redis.connection.scripts import Argument
from django_jobs.stores.redis.connection.thread_connection import SpinWait, ThreadConnection, packed

#: Seconds that a reply may take beyond the time of the wait: with `hz 1`, a server ends a wait up to a second late.
PATIENCE = 1.5


class Waits:
    """The waits on connections of one pool.  Safe across threads and forks."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        #: False: the server has refused CLIENT ID or CLIENT UNBLOCK to this user.
        self._may_end = True

    def run(self, connection: ThreadConnection, args: Sequence[Argument], timeout: float, exact: bool) -> Any:
        """Run a command that waits for at most `timeout` seconds, on a connection that is ready.

        `exact`: end it then, not up to a tenth of a second later, if the user may.  Raises redis-py's errors."""
        can_end = exact and self._knows_id(connection)
        connection.send(packed(*args))
        try:
            # The `socket_timeout` for all other replies may be shorter than the wait.
            return connection.receive(timeout=timeout if can_end else timeout + PATIENCE)
        except driver.TimeoutError:
            if not can_end:
                raise
        return self._end(connection)

    def _knows_id(self, connection: ThreadConnection) -> bool:
        """Ask for the ID of this connection, once.  Return whether a wait on it can be ended."""
        if self._may_end and connection.client_id is None:
            try:
                connection.client_id = connection.call(packed("CLIENT", "ID"))
            except driver.ResponseError as error:
                self._refused(error)
        return self._may_end and connection.client_id is not None

    def _refused(self, error: driver.ResponseError) -> None:
        """The server has not run CLIENT ID or CLIENT UNBLOCK.  If it is only busy, the next wait asks again."""
        if not is_passing(error):
            self._may_end = False

    def _end(self, connection: ThreadConnection) -> Any:
        """End the wait of this connection and return its reply.

        If the wait cannot be ended, the server ends it a moment later."""
        try:
            other = ThreadConnection(self._pool, self._pool.get_connection(), SpinWait())
        except DRIVER_ERRORS:
            return connection.receive(timeout=PATIENCE)
        try:
            with suppress(*DRIVER_ERRORS):
                # After a failover, the other connection leads to a server where this ID is another client's.
                if _server(other) == _server(connection):
                    other.send(packed("CLIENT", "UNBLOCK", connection.client_id or 0))
            reply = connection.receive(timeout=PATIENCE)
            if other.owed:
                self._read_answer(other)
            return reply
        finally:
            other.release()

    def _read_answer(self, other: ThreadConnection) -> None:
        """Read the answer to CLIENT UNBLOCK, if it comes."""
        try:
            other.receive(timeout=PATIENCE)
        except driver.ResponseError as error:
            self._refused(error)
        except DRIVER_ERRORS:
            pass  # the connection still owes the answer, and `release` closes it


def _server(connection: ThreadConnection) -> Any:
    """Return the address at the other end of the socket.  Raises OSError."""
    raw: Any = connection.raw
    return raw._sock.getpeername()
