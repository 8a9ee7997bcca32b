"""The part of the store contract that only the archiver uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from django_jobs.core.values import JobInfo
from django_jobs.stores.contract.batches import MAX_BATCH


class ArchiveStore(ABC):
    """How finished jobs leave the store for the archive."""

    @abstractmethod
    def archive_batch(self, queue: str, limit: int = MAX_BATCH) -> list[tuple[int | str, JobInfo]]:
        """With `StoreOptions.archive`: return jobs that finished and wait for the archiver, oldest first, each with
        its key; fewer than `limit` if they together reach MAX_BYTES.

        The jobs are only read; `archive_done` removes them.  Each info has state, end, result and attempts as they
        were at the end; a job that is revived and finishes again is returned again."""

    @abstractmethod
    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        """Remove what `archive_batch` returned and the archiver has written.  Keys that are gone are ignored."""
