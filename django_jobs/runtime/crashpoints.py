"""Places where the survival tests kill a worker.  Nothing happens unless DJANGO_JOBS_CRASH names one."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_name, _count, _once = ([*os.environ.get("DJANGO_JOBS_CRASH", "").split(":", 2), "", ""])[:3]
_passed = 0

#: Tested before every call on hot paths, so that the cost outside these tests is one truth test.
ACTIVE = bool(_name)


def crashpoint(name: str) -> None:
    """SIGKILL this process if DJANGO_JOBS_CRASH is "name:n" and this is the n-th call with that name (default: 1st).

    With "name:n:path" only the first process that gets this far dies: it creates the file `path`."""
    global _passed
    if name == _name:
        _passed += 1
        if _passed == int(_count or 1):
            with suppress(FileExistsError):
                if _once:
                    os.close(os.open(_once, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
