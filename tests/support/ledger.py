"""What really happened, written where no fault reaches: one line per event, one write() per line.

attempt ID            a producer is about to enqueue
ack ID                enqueue returned
declined ID           enqueue returned, and an equal job was there
start ID TOKEN        a job's function began         (every line ends with PID and monotonic nanoseconds)
end ID TOKEN          … and is about to return
told ID               a job that was enqueued for the end of that job ran
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple
from urllib.parse import quote

from tests.support.waiting import wait_until


class Event(NamedTuple):
    """One line."""

    kind: str
    id: str
    token: int
    pid: int
    at: int
    name: str


class Writer:
    """Appends; the kernel keeps lines of several processes whole."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, id: str, token: int = 0, name: str = "-") -> None:
        """One event, now."""
        os.write(self._file, f"{kind} {quote(id)} {token} {os.getpid()} {monotonic_ns()} {name}\n".encode())


class Ledger:
    """Reads what has been written so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.events: list[Event] = []
        #: kind → jobs that have such an event.  Tests ask for their number many times a second.
        self._ids: defaultdict[str, set[str]] = defaultdict(set)
        self._rest = b""
        self._at = 0

    def read(self) -> list[Event]:
        """All events so far, oldest first."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            kind, id, token, pid, at, name = line.decode().split(" ")
            self.events.append(Event(kind, id, int(token), int(pid), int(at), name))
            self._ids[kind].add(id)
        return self.events

    def count(self, kind: str) -> int:
        """How many different jobs have such an event."""
        self.read()
        return len(self._ids[kind])

    def wait(self, kind: str, count: int, *, seconds: float = 60.0) -> None:
        """Until so many different jobs have such an event."""
        wait_until(lambda: self.count(kind) >= count, f"{count} jobs with {kind!r} in the ledger", seconds=seconds)

    def wait_for(self, condition: Callable[[list[Event]], object], what: str, *, seconds: float = 60.0) -> None:
        """Until the events fulfil a condition."""
        wait_until(lambda: condition(self.read()), what, seconds=seconds)
