"""The store of one test: in memory, with the test's clock."""

from __future__ import annotations

from collections.abc import Callable

from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """Stays when settings change in the middle of a test; ends with the test."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(":memory:", StoreOptions(clock=clock))

    def close(self) -> None:
        """Closing a store in memory would empty it, and the jobs belong to the test."""

    def really_close(self) -> None:
        """The test has ended."""
        super().close()
