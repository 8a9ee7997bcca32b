"""A scheduler process: looks after the schedules of the settings, by a clock that the test moves; may be killed.

    python -m tests.survival.project.scheduler FILE PLACE

FILE holds numbers of 8 bytes: first the time in ms, then for each place the time of its last finished look.
"""

from __future__ import annotations

import mmap
import struct
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

PLACES = 8


class Clock:
    """The file, seen by the test and by every scheduler."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(8 + 8 * PLACES))
        with path.open("r+b") as file:
            self._numbers = mmap.mmap(file.fileno(), 0)

    def __call__(self) -> int:
        return self._get(0)

    def set(self, now: int) -> None:
        self._put(0, now)

    def looked(self, place: int, at: int) -> None:
        self._put(1 + place, at)

    def newest_look(self) -> int:
        return max(self._get(1 + place) for place in range(PLACES))

    def _get(self, index: int) -> int:
        return int(struct.unpack_from("q", self._numbers, 8 * index)[0])

    def _put(self, index: int, value: int) -> None:
        struct.pack_into("q", self._numbers, 8 * index, value)


def serve(clock: Clock, place: int) -> None:
    """Look whenever the time has changed, as all the others do at the same moment."""
    from django_jobs.exceptions import StoreError
    from django_jobs.schedules.scheduler import Periodic

    periodic, seen, pause = Periodic(), 0, Event()
    while True:
        now = clock()
        if now == seen:
            pause.wait(0.0005)
            continue
        try:
            periodic.tick()
        except StoreError:
            pause.wait(0.01)
            continue
        seen = now
        clock.looked(place, now)


if __name__ == "__main__":
    import django

    django.setup()
    from django_jobs.stores import get_store

    hands = Clock(Path(sys.argv[1]))
    get_store().options = replace(get_store().options, clock=hands)
    serve(hands, int(sys.argv[2]))
