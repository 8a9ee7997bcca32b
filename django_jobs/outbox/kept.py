"""The row of a deferred job or workflow, and all rows of a batch, as a handle sees them.

To cancel what is kept is to delete its row in the transaction that is open: if that is rolled back, the row is back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from django_jobs.outbox.entries import drop, rows


class Kept:
    """One row, or those of one batch.  Until its transaction is committed, nobody else can have read it."""

    def __init__(self, token: str, alias: str, *, batch: str = "") -> None:
        self.token, self._alias, self._batch = token, alias, batch
        #: its transaction is committed.
        self.is_committed = False
        #: it was deleted in a transaction that has not been committed, or was rolled back.
        self.is_leaving = False

    def leave(self, gone: Callable[[], None]) -> bool:
        """Delete the row, and call `gone` when that is committed.  Returns False if there is none."""
        if not drop(self._rows(), self._alias):
            return False

        def left() -> None:
            self.is_leaving = False
            gone()

        self.is_leaving = connections[self._alias].in_atomic_block
        transaction.on_commit(left, using=self._alias, robust=self.is_leaving)
        return True

    def has_come_back(self, *, at_commit: bool = False) -> bool:
        """Return whether the transaction that deleted it was rolled back.  Raises DatabaseError.

        `at_commit`: the callbacks of the transaction run, so only the row itself can tell."""
        if self.is_leaving:
            is_back = self.exists() or not (at_commit or connections[self._alias].in_atomic_block)
            self.is_leaving = not is_back
            return is_back
        return False

    def is_left_to_workers(self) -> bool:
        """Return whether its transaction is committed, so that a worker sends it.  Raises DatabaseError.

        Inside a transaction the answer is no: it may be the one that wrote the row."""
        if connections[self._alias].in_atomic_block:
            return False
        self.is_committed = self.is_committed or self.exists()
        return self.is_committed

    def exists(self) -> bool:
        """Return whether the row is there, as this connection sees it.  Raises DatabaseError."""
        return bool(self._rows().exists())

    def _rows(self) -> Any:
        return rows(self._alias).filter(**({"batch": self._batch} if self._batch else {"token": self.token}))
