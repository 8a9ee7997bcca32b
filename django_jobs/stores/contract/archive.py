"""The part of the store contract that only the archiver uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from django_jobs.core.values import JobInfo
from django_jobs.stores.contract.batches import MAX_BATCH


class ArchiveStore(ABC):
    """How finished jobs leave the store for the archive.

    With `StoreOptions.archive`, every job that ends is also added to the end of its queue's outbox.  If the outbox
    holds `StoreOptions.backlog` jobs, the job is not added, and the total "not_archived" counts it."""

    @abstractmethod
    def archive_turns(self, queues: Sequence[str], archiver: str, lease: int) -> list[str]:
        """Return those of the queues whose outbox is not empty and that this archiver may now empty.

        It has the turn for `lease` ms from now.  A queue is left out while another archiver has its turn.  A turn only
        keeps archivers from doing the same work twice: without one, `archive_batch` and `archive_done` do no harm."""

    @abstractmethod
    def archive_leave(self, queues: Sequence[str], archiver: str) -> None:
        """End the turns that this archiver has: another one need not wait for the end of its lease."""

    @abstractmethod
    def archive_batch(self, queue: str, limit: int = MAX_BATCH, skip: int = 0) -> list[tuple[int | str, JobInfo]]:
        """Return jobs of the outbox after the first `skip`, oldest first, each with its key; fewer than `limit` if they
        together reach MAX_BYTES.

        The jobs are only read; `archive_done` removes them.  Each info has state, end, result and attempts as they
        were at the end; a job that is revived and finishes again is returned again."""

    @abstractmethod
    def archive_done(self, queue: str, keys: Sequence[int | str]) -> None:
        """Remove from the outbox what one `archive_batch` returned and the archiver has written.

        `keys` are all its keys, in order.  A call that arrives twice or late removes no job that was not written, also
        if another archiver has emptied a part of the outbox, or a server has lost its last second."""
