"""The store's clock between two of its answers."""

from __future__ import annotations

from time import monotonic, time


class StoreClock:
    """The store's time in ms: what it last said, plus what has passed here since.  Never two hosts' wall clocks."""

    def __init__(self) -> None:
        self._offset = time() - monotonic()

    def sync(self, now: int) -> None:
        """The store just said that it is `now`."""
        self._offset = now / 1000 - monotonic()

    def __call__(self) -> int:
        return int((monotonic() + self._offset) * 1000)
