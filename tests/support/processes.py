"""Child processes of a test that cannot outlive it, whatever kills what."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For preexec_fn: SIGKILL when the test process ends (Linux; elsewhere nothing)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Direct children of a process; [] if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid: int) -> bool:
    """Is it there, and not only waiting to be reaped?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def send_signal(pid: int, number: int) -> bool:
    """False if it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def catches(pid: int, number: int) -> bool:
    """Has the process a handler for this signal?"""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def open_files(pid: int) -> set[str]:
    """What its file descriptors lead to, "socket:[17]" for instance.  Those that are closed during the look are left
    out; none if it is gone."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(entry))
    return found


def is_stopped(pid: int) -> bool:
    """Do all its threads stand still, after SIGSTOP or because it is gone?"""
    try:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return not is_alive(pid)
    return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)
