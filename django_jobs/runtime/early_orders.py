"""An order to stop that comes while `runworkers` starts, before the worker has its own signal handlers."""

from __future__ import annotations

import signal
from types import FrameType

#: Has such an order come?
came = False


def note_them() -> None:
    """Note SIGTERM from now on.  The worker then ends before it claims anything, with status 0.

    An exception in the handler would be quicker.  But Python drops an exception in a destructor, or in a callback of a
    weak reference, and imports make many of these: the order would be lost."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _note)


def _note(number: int, frame: FrameType | None) -> None:
    global came
    came = True
