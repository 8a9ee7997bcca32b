"""What is done for many, of which the store may refuse one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_jobs.exceptions import StoreError, StoreUnavailable


class Refusals:
    """What the store refuses for one queue or workflow, such as for a damaged key, keeps the others from nothing: it is
    raised when all had their turn."""

    def __init__(self) -> None:
        self._last: StoreError | None = None

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Do this for one of them.  Raises StoreUnavailable: it concerns all."""
        try:
            yield
        except StoreUnavailable:
            raise
        except StoreError as error:
            self._last = error

    def raise_last(self) -> None:
        """All had their turn: raise the last StoreError, if there was one."""
        if self._last is not None:
            raise self._last
