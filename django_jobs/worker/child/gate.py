"""May this process claim jobs?  One object per child, asked before every claim."""

from __future__ import annotations

from threading import Event


class Gate:
    """Closed for a while (quiet, fenced), or for good (`final`: the child ends when it has nothing left to run)."""

    def __init__(self) -> None:
        self.closed = False
        self.final = False
        #: what is claimed and not begun is handed back.
        self.draining = False
        #: set with `final`; pauses wait on it.
        self.ended = Event()

    def close(self) -> None:
        """Claim nothing for now."""
        self.closed = True

    def open(self) -> None:
        """Claim again, unless it is closed for good."""
        self.closed = self.final

    def retire(self) -> None:
        """Claim nothing any more; what is claimed is run."""
        self.closed = self.final = True
        self.ended.set()

    def abandon(self) -> None:
        """In a copy of the process: nothing is claimed or begun.  The event's lock may be held for ever."""
        self.closed = self.final = self.draining = True

    def drain(self) -> None:
        """Claim nothing any more, and begin nothing that is claimed."""
        self.draining = True
        self.retire()
