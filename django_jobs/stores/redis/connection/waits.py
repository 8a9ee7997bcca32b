"""Commands that wait on the server, and end when their time is over.

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
from django_jobs.stores.redis.connection.replies import Argument, in_order
from django_jobs.stores.redis.connection.wire import Held

#: Seconds that a reply may take beyond the time of the wait.
PATIENCE = 1.0


class Waits:
    """The waits on connections of one pool.  Safe across threads and forks."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        #: False: the server has refused CLIENT ID or CLIENT UNBLOCK to this user.
        self._may_end = True

    def run(self, held: Held, args: Sequence[Argument], timeout: float, exact: bool) -> Any:
        """Run a command that waits for `timeout` seconds at most, on a connection that is ready.

        `exact`: end it then, not up to a tenth of a second later, if the user may.  Raises redis-py's errors."""
        connection = held.connection
        can_end = exact and self._learn_number(held)
        connection.send_command(*args)
        # A timeout of its own: that of all other reads may be shorter (`?socket_timeout=1`).
        if can_end:
            came = connection.can_read(timeout) or self._end(held)
        else:
            came = connection.can_read(timeout + PATIENCE)
        if not came:
            raise driver.TimeoutError(f"no answer after {timeout + PATIENCE:g} s")
        return connection.read_response()

    def _learn_number(self, held: Held) -> bool:
        """Ask which number the server has given to this connection, once.  Return whether a wait can be ended."""
        if self._may_end and held.number is None:
            try:
                (held.number,) = in_order(held.connection, [("CLIENT", "ID")])
            except driver.ResponseError as error:
                self._refused(error)
        return self._may_end and held.number is not None

    def _refused(self, error: driver.ResponseError) -> None:
        """The server has not run CLIENT ID or CLIENT UNBLOCK.  If it is only busy, the next wait asks again."""
        if not is_passing(error):
            self._may_end = False

    def _end(self, held: Held) -> bool:
        """End the wait of this connection.  Return whether its reply came in time: if the wait could not be ended, the
        server ends it a moment later."""
        try:
            other = self._pool.get_connection()
        except DRIVER_ERRORS:
            return held.connection.can_read(PATIENCE)
        owes = False
        try:
            with suppress(*DRIVER_ERRORS):
                # After a failover, the other connection leads to a server that knows somebody else by this number.
                if _server(other) == _server(held.connection):
                    owes = True
                    other.send_command("CLIENT", "UNBLOCK", held.number)
            came = held.connection.can_read(PATIENCE)
            owes = owes and not (came and self._read_answer(other))
        finally:
            if owes:
                other.disconnect()  # the reply may still come, and the next call must not read it
            self._pool.release(other)
        return came

    def _read_answer(self, other: redis.Connection) -> bool:
        """Read the answer to CLIENT UNBLOCK.  Return whether it came."""
        try:
            if not other.can_read(PATIENCE):
                return False
            other.read_response()
        except driver.ResponseError as error:
            self._refused(error)
        except DRIVER_ERRORS:
            return False
        return True


def _server(connection: Any) -> Any:
    """Return the address at the other end of the socket.  Raises OSError."""
    return connection._sock.getpeername()
