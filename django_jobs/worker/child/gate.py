"""May this process claim jobs?  One object per child, asked before every claim."""

from __future__ import annotations

from threading import Event


class Gate:
    """Closed until `open` (quiet, fenced), or for ever (`final`: the child ends when its last job has ended)."""

    def __init__(self) -> None:
        self.closed = False
        self.final = False
        #: claims whose jobs are not begun are handed back.
        self.draining = False
        #: set with `final`; pauses wait on it.
        self.ended = Event()

    def close(self) -> None:
        """Claim nothing for now."""
        self.closed = True

    def open(self) -> None:
        """Claim again, unless it is closed for ever."""
        self.closed = self.final

    def retire(self) -> None:
        """Stop claiming; claimed jobs are run."""
        self.closed = self.final = True
        self.ended.set()

    def abandon(self) -> None:
        """In a copy of the process: claim and begin nothing.  Do not touch the event: its lock may be held for ever."""
        self.closed = self.final = self.draining = True

    def drain(self) -> None:
        """Stop claiming, and begin no claimed job."""
        self.draining = True
        self.retire()
