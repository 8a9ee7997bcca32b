"""What all parts of SqliteStore share: the database, the clock, and one transaction per method."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.sqlite.database.connection import Database
from django_jobs.stores.sqlite.database.transaction import Transaction


class SqlitePart:
    """Base class of each part; SqliteStore combines them."""

    database: Database
    options: StoreOptions

    def now(self) -> int:
        clock = self.options.clock
        return clock() if clock is not None else time.time_ns() // 1_000_000

    @contextmanager
    def writing(self, queue: str) -> Iterator[Transaction]:
        """Begin one atomic transition on one queue."""
        with self.database.write() as connection:
            transaction = Transaction(connection, self.options, queue, self.now())
            yield transaction
            transaction.finish()

    def reading(self, queue: str, connection: sqlite3.Connection) -> Transaction:
        """Return a Transaction for a connection that only reads."""
        return Transaction(connection, self.options, queue, self.now())
