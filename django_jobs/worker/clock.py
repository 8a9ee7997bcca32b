"""The store's clock between two of its answers."""

from __future__ import annotations

from time import monotonic, time


class StoreClock:
    """The store's time in ms: its last answer plus the monotonic time since.  Never compares two hosts' wall clocks."""

    def __init__(self) -> None:
        self._offset = time() - monotonic()

    def sync(self, now: int) -> None:
        """Set the clock: the store has just answered that its time is `now` (ms)."""
        self._offset = now / 1000 - monotonic()

    def __call__(self) -> int:
        return int((monotonic() + self._offset) * 1000)
