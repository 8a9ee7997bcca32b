"""SqliteStore: all its parts together, and the location of its file from the STORE setting."""

from __future__ import annotations

import threading
from pathlib import Path

from django_jobs.stores.contract.store import Store, StoreOptions
from django_jobs.stores.sqlite.browsing import SqliteBrowsing
from django_jobs.stores.sqlite.claiming import SqliteClaiming
from django_jobs.stores.sqlite.database.connection import MEMORY, Database
from django_jobs.stores.sqlite.database.locking import writer_of
from django_jobs.stores.sqlite.ends import SqliteEnds
from django_jobs.stores.sqlite.enqueueing import SqliteEnqueueing
from django_jobs.stores.sqlite.faults import SqliteFaults
from django_jobs.stores.sqlite.fleet import SqliteFleet
from django_jobs.stores.sqlite.lists import SqliteLists
from django_jobs.stores.sqlite.operating import SqliteOperating
from django_jobs.stores.sqlite.repairing import SqliteRepairing
from django_jobs.stores.sqlite.settling import SqliteSettling
from django_jobs.stores.sqlite.standing import SqliteStanding
from django_jobs.stores.sqlite.waiting import SqliteWaiting
from django_jobs.stores.sqlite.workflows import SqliteWorkflows


class SqliteStore(
    SqliteEnqueueing,
    SqliteClaiming,
    SqliteSettling,
    SqliteWaiting,
    SqliteRepairing,
    SqliteFaults,
    SqliteOperating,
    SqliteFleet,
    SqliteEnds,
    SqliteLists,
    SqliteBrowsing,
    SqliteStanding,
    SqliteWorkflows,
    Store,
):
    """Jobs in one SQLite file, shared by the processes of one machine; or in the memory of this process.

    `path` is a file name (the file and its directory are created at first use) or ":memory:", where each store has its
    own data."""

    def __init__(self, path: str | Path, options: StoreOptions | None = None) -> None:
        self.database = Database(str(path))
        self.options = options or StoreOptions()
        self._seen = threading.local()
        self._round, self._waited, self._locked = {}, {}, {}

    @classmethod
    def from_setting(cls, text: str, *, base_dir: str | Path, options: StoreOptions | None = None) -> SqliteStore:
        """Make the store that DJANGO_JOBS["STORE"] names: "memory", "embedded" or "embedded:/path/to/jobs.sqlite3"."""
        kind, _, path = text.partition(":")
        if kind == "memory":
            return cls(MEMORY, options)
        return cls(Path(base_dir) / (path or ".state/jobs.sqlite3"), options)

    def locked_by(self) -> int:
        return 0 if self.database.in_memory else writer_of(self.database.path)

    def close(self) -> None:
        self.database.close()
