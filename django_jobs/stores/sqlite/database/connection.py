"""Connections to the SQLite file: one per thread and process, or one for all threads if the data is in memory.

Why a kill loses nothing: in WAL mode, a commit is written to the operating system before the call returns, and this
data survives the death of any process.  `synchronous=NORMAL` saves the fsync per commit; its price is that a power cut
may undo the last commits, but never damages the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable

MEMORY = ":memory:"
SCHEMA_VERSION = 11
#: seconds to wait for another process's transaction; less than the 5 s within which enqueue must answer.
BUSY_TIMEOUT = 4.5
#: seconds of that in one SQLite call: signal handlers of this process run between two such calls.
BUSY_STEP = 0.25
#: seconds between checks for what other processes wrote.
POLL = 0.015


class Connection:
    """One SQLite connection and the lock of the thread that uses it."""

    def __init__(self, path: str) -> None:
        self.lock = threading.RLock()
        self.closed, self.pid = False, os.getpid()
        # Python's thread check is off because close() closes the connections of other threads, under their lock.
        self.raw = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        # When a thread ends, its connection is dropped: Python 3.13 warns if a driver's was never closed.  Not __del__:
        # in a cycle that is collected, the driver's may come first.  The finalizer keeps it out of any cycle.
        weakref.finalize(self, _drop, self.raw, self.pid).atexit = False


def _drop(raw: sqlite3.Connection, pid: int) -> None:
    """Close the driver's connection of a Connection that nothing uses any more."""
    if pid == os.getpid():
        raw.close()
    else:
        _FOREIGN.append(raw)


#: Connections that came through a fork.  SQLite forbids even closing them, and closing could wait for ever: a thread
#: that does not exist in the copy may have been in the middle of a call.
_FOREIGN: list[sqlite3.Connection] = []


class _Process:
    """What belongs to one process: after a fork, the child process starts with a new one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.local = threading.local()
        self.open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.listing = threading.Lock()  # of that set: adding to it while another thread iterates it is an error
        #: threads wait for this lock instead of in SQLite, which waits in a series of growing sleeps.
        self.writer = threading.Lock()
        self.changed = threading.Condition()
        self.changes = self.closed = 0


class Database:
    """One file (or memory) with the tables of schema.sql, created at first use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.in_memory = path == MEMORY
        self._process = _Process()
        self._inherited: list[_Process] = []
        self._shared: Connection | None = None
        self._opening = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of all data."""
        with self._using() as connection:
            _begin(connection, "BEGIN")
            try:
                yield connection
            finally:
                _end(connection, "ROLLBACK")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing.  Waiting threads of this process are woken after it."""
        process = self._current()
        with process.writer, self._using() as connection:
            _begin(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _end(connection, "ROLLBACK")
                raise
        with process.changed:
            process.changes += 1
            process.changed.notify_all()

    def copy(self, other: Database) -> None:
        """Replace all data with that of another database."""
        with other.read() as source, self._using() as target:
            source.backup(target)

    def mark(self) -> tuple[int, int]:
        """Return a value that changes when any process has written: for `wait`."""
        changes = self._current().changes
        if self.in_memory:
            return changes, 0
        with self._using() as connection:
            return changes, connection.execute("PRAGMA data_version").fetchone()[0]

    def wait(self, mark: tuple[int, int], timeout: float) -> None:
        """Block until something was written since `mark`, at most `timeout` seconds."""
        process, deadline = self._current(), time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with process.changed:
                step = left if self.in_memory else min(left, POLL)
                process.changed.wait_for(lambda: process.changes != mark[0], step)
            if self.mark() != mark:
                return

    def close(self) -> None:
        """Close this process's connections.  A database in memory stays open, because closing would lose it."""
        process = self._current()
        process.closed += 1
        with process.listing:
            opened, process.open = list(process.open), weakref.WeakSet()
        for connection in opened:
            with connection.lock:
                connection.closed = True
                connection.raw.close()

    def _current(self) -> _Process:
        if self._process.pid != os.getpid():
            if self.in_memory:
                raise StoreMisconfigured(
                    "The store 'memory' exists in one process only, and this process is a fork of it. "
                    "Set DJANGO_JOBS['STORE'] to 'embedded' to share jobs between processes."
                )
            # Kept, because SQLite forbids even closing a connection that came through a fork.
            self._inherited.append(self._process)
            self._process = _Process()
        return self._process

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path):
            connection = self._connection()
            connection.lock.acquire()
            try:
                if connection.closed:
                    # close() came between the two lines above; the second try makes a new connection.
                    with self._using() as raw:
                        yield raw
                else:
                    yield connection.raw
            finally:
                connection.lock.release()

    def _connection(self) -> Connection:
        process = self._current()
        if self.in_memory:
            with self._opening:
                if self._shared is None:
                    self._shared = self._open()
                return self._shared
        mine: tuple[int, Connection] | None = getattr(process.local, "connection", None)
        if mine is None or mine[0] != process.closed:
            mine = process.local.connection = process.closed, self._open()
            with process.listing:
                process.open.add(mine[1])
        return mine[1]

    def _open(self) -> Connection:
        if not self.in_memory:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = Connection(self.path)
        raw = connection.raw
        raw.execute("PRAGMA synchronous = NORMAL")
        raw.execute("PRAGMA journal_size_limit = 67108864")
        if raw.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
            _create(raw, self.path)
        raw.execute(f"PRAGMA busy_timeout = {int(BUSY_STEP * 1000)}")
        return connection


def _create(raw: sqlite3.Connection, path: str) -> None:
    """Create the tables once, however many processes open the new file at the same time."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            raw.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # Changing the mode needs exclusive use of the file, and does not wait for it as other statements do.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL)
    raw.execute("BEGIN EXCLUSIVE")
    try:
        version = raw.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreMisconfigured(
                f"{path} has tables of version {version}, and this django_jobs knows version {SCHEMA_VERSION}. Install "
                "the django_jobs that wrote the file, or run its jobs there with --drain and move the file away."
            )
        if version < SCHEMA_VERSION:
            sql = resources.files(__package__).joinpath("schema.sql").read_text()
            for statement in _statements(sql):
                # Statements added after version 1 contain IF NOT EXISTS: older files get only these, and keep the rest.
                if version == 0 or "IF NOT EXISTS" in statement:
                    raw.execute(statement)
            if version < 9:  # before, the rows were counted at each look
                raw.execute(
                    "INSERT OR REPLACE INTO totals SELECT queue, 'outbox', count(*) FROM archive GROUP BY queue"
                )
            raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        raw.execute("COMMIT")
    except BaseException:
        _end(raw, "ROLLBACK")
        raise


def _statements(sql: str) -> Iterator[str]:
    """Split a script into statements; executescript() would commit in between."""
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _begin(connection: sqlite3.Connection, how: str) -> None:
    """Begin a transaction so that nothing after this waits for another process: a reader takes its view here."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute(how)
            if how == "BEGIN":
                connection.execute("PRAGMA schema_version").fetchone()
            return
        except sqlite3.OperationalError as error:
            _end(connection, "ROLLBACK")
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise


def _end(connection: sqlite3.Connection, how: str) -> None:
    # A failed statement may have ended the transaction already; then there is nothing to end.
    if connection.in_transaction:
        with suppress(sqlite3.OperationalError):
            connection.execute(how)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate the driver's errors into store errors, each with the file and a remedy."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(path, error) from error


def explained(path: str, error: sqlite3.Error | OSError) -> StoreError:
    """Return the store error for an error of the driver."""
    # The low byte is the primary code; the rest only adds details.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"No space is left on the disk of {path} ({error}). Nothing was stored. Free some space.")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorrupt(f"{path} is damaged or not a SQLite file ({error}). Restore a copy, or move it away.")
    if code in {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    } or isinstance(error, OSError):
        return StoreMisconfigured(
            f"{path} cannot be opened for writing ({error}). Give this user write access to the file and its "
            "directory, or name another with DJANGO_JOBS['STORE'] = 'embedded:/path/to/jobs.sqlite3'."
        )
    if code == sqlite3.SQLITE_BUSY:
        return StoreUnavailable(
            f"{path} was locked by another process for {BUSY_TIMEOUT} s. Look for a process that is stopped in the "
            "middle of a transaction (a debugger, a backup). Then try again with the same job_id."
        )
    return StoreUnavailable(f"{path} cannot be used now: {error}")
