"""Database connections before and after jobs: no stale connection before, no open transaction after."""

from __future__ import annotations

import logging
import select
import threading
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

logger = logging.getLogger("django_jobs.worker")

#: Seconds after which the server may have cut an unused connection unnoticed: it is checked before its next use.
IDLE = 1.0

_LEFT_OPEN = "%s left a transaction open on database %r. It was rolled back, and the connection was closed"
_GIVEN_UP = "The connection to database %r cannot be closed and is no longer used"

_thread = threading.local()
#: The connections of all threads that were opened, by `id`.  There is no lock, which a fork could leave taken: one
#: operation of a dict adds a connection, and one copies them.
_opened: WeakValueDictionary[int, BaseDatabaseWrapper] = WeakValueDictionary()


def _remember(connection: BaseDatabaseWrapper, **_: Any) -> None:
    _thread.opened = True
    _opened[id(connection)] = connection


connection_created.connect(_remember, dispatch_uid="django_jobs.runtime.database_connections")
for _connection in connections.all(initialized_only=True):  # a view may be the first to import a module with jobs
    _opened[id(_connection)] = _connection


def in_transaction_anywhere(alias: str) -> bool:
    """Return whether any thread of this process is inside atomic() on this database."""
    return any(
        (connection := each()) is not None and connection.in_atomic_block and connection.alias == alias
        for each in _opened.valuerefs()
    )


def before_job() -> None:
    """Drop connections that the server may have closed.  Costs almost nothing on a thread without connections."""
    if getattr(_thread, "opened", False):
        idle = monotonic() - getattr(_thread, "used", 0.0) > IDLE
        for connection in connections.all(initialized_only=True):
            _tidy(connection)
            _check_at_first_query(connection, idle or _has_news(connection))


def after_job(id: str = "", name: str = "") -> None:
    """Keep the connections that CONN_MAX_AGE keeps, and roll back a transaction that the job left open.

    `id` and `name` are those of the job, for the log."""
    if getattr(_thread, "opened", False):
        _thread.used = monotonic()
        for connection in connections.all(initialized_only=True):
            connection.queries_log.clear()
            if connection.in_atomic_block or _in_transaction(connection):
                # The connection's next user would write into a transaction that is never committed.
                logger.warning(_LEFT_OPEN, f"Job {id} ({name})" if id else "A job", connection.alias)
                _drop(connection)
            else:
                _tidy(connection)


def close_thread() -> None:
    """Close this thread's connections before it ends or idles: they would count against the server's limit."""
    if getattr(_thread, "opened", False):
        connections.close_all()


def close_all() -> None:
    """Close all connections before a fork: a child must not share a socket with its parent."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        # A pool has sockets, and threads that would not exist in the child.  (Reading `connection.pool` makes a pool.)
        if connection.alias in getattr(connection, "_connection_pools", ()):
            connection.close_pool()  # type: ignore[attr-defined]


def _check_at_first_query(connection: BaseDatabaseWrapper, wanted: bool) -> None:
    """Let Django check the connection before its next query: a job without queries does not wait for a database."""
    connection.health_check_enabled = (  # type: ignore[attr-defined]
        wanted or connection.settings_dict["CONN_HEALTH_CHECKS"]
    )


#: SERVER_STATUS_IN_TRANS in the MySQL protocol.
_MYSQL_IN_TRANSACTION = 1
#: libpq's transaction states of a connection that is not in a transaction: idle, and unknown (it is closed).
_PQ_IDLE = (0, 4)


def _in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Is a transaction open, even one that Django does not know of (a raw BEGIN)?  Asks the driver, without a query.

    mysqlclient does not tell: with it, only transactions that Django knows of are found."""
    raw: Any = connection.connection
    try:
        status = getattr(getattr(raw, "info", None), "transaction_status", None)
        if status is not None:  # psycopg, psycopg2
            return status not in _PQ_IDLE
        for sign in ("in_transaction", "transaction_in_progress"):  # sqlite3; oracledb
            if (found := getattr(raw, sign, None)) is not None:
                return bool(found)
        status = getattr(raw, "server_status", None)  # PyMySQL
        return isinstance(status, int) and bool(status & _MYSQL_IN_TRANSACTION)
    except Exception:
        return False  # the connection is broken; `_tidy` closes it


def _tidy(connection: BaseDatabaseWrapper) -> None:
    try:
        connection.close_if_unusable_or_obsolete()
    except Exception:
        # A driver may raise even while closing; the jobs of this process must not fail because of that.
        logger.warning(_GIVEN_UP, connection.alias, exc_info=True)
        del connections[connection.alias]


def _drop(connection: BaseDatabaseWrapper) -> None:
    try:
        connection.close()
    except Exception:
        logger.warning(_GIVEN_UP, connection.alias, exc_info=True)
    del connections[connection.alias]


def _has_news(connection: BaseDatabaseWrapper) -> bool:
    """Has the server sent data without a query?  Mostly this means that it closed the connection.  Costs no round
    trip."""
    fileno = getattr(connection.connection, "fileno", None)
    if fileno is None:
        return False
    try:
        poll = select.poll()
        poll.register(fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except Exception:
        # Each driver has its own error for a connection that is closed.
        return True
