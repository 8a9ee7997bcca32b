"""Something that goes wrong again and again while work goes on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


class FaultInjector:
    """Does something again and again, in a thread, until the work is done."""

    def __init__(self, act: Callable[[], object], every: float) -> None:
        self.act, self.every, self.times = act, every, 0
        self._end = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.wait(self.every):
            self.act()
            self.times += 1

    def __enter__(self) -> FaultInjector:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join(60)
