"""The store of one test: in memory, with the test's clock."""

from __future__ import annotations

from collections.abc import Callable

from django_jobs.stores.contract.store import StoreOptions
from django_jobs.stores.sqlite import SqliteStore


class MemoryStore(SqliteStore):
    """A store that stays when settings change in the middle of a test, and ends with the test."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(":memory:", StoreOptions(clock=clock))

    def close(self) -> None:
        """Do nothing: closing a store in memory would delete the test's jobs."""

    def really_close(self) -> None:
        """Close the store at the end of the test."""
        super().close()
