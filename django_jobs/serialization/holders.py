"""Names of the holders of claims that report over HTTP.  No parent process renews their leases; each holds one job.

    remote:ID       remote:@WORKER:ID       the claim is confirmed, or need not be
    remote:?:ID     remote:?@WORKER:ID      its worker has not confirmed the claim, and may not have received it

WORKER is what the worker calls itself, if it does.  Ids of jobs have no "?" and no "@"; names of workers have no ":"
either.  `leases` in stores/redis/lua/upkeep/repair.lua reads these names, too.
"""

from __future__ import annotations

import re

PREFIX = "remote:"
_NAME = re.compile(r"remote:(?:\??@([^:]*):|\?:)?(.*)", re.DOTALL)


def remote_holder(worker: str = "", *, confirmed: bool = True) -> str:
    """Return the name of a remote holder without the id of its job, which follows after a ":"."""
    mark = ("" if confirmed else "?") + (f"@{worker}" if worker else "")
    return PREFIX + mark if mark else PREFIX.rstrip(":")


def is_remote(holder: str) -> bool:
    """Return whether the holder of a claim reports over HTTP."""
    return holder.startswith(PREFIX)


def is_unconfirmed(holder: str) -> bool:
    """Return whether the holder has not confirmed that it received the job.  Such an attempt has not begun, so it goes
    back uncounted."""
    return holder.startswith(PREFIX + "?")


def confirmed(holder: str, id: str) -> str:
    """Return the name of the holder of this job after it has confirmed the claim."""
    return f"{remote_holder(worker_of(holder))}:{id}"


def worker_of(holder: str) -> str:
    """Return what the remote worker calls itself; "" if it does not, or the holder is not remote."""
    found = _NAME.fullmatch(holder)
    return found[1] or "" if found is not None else ""


def shown(holder: str) -> str:
    """Return the holder as users see it: a remote worker that has a name by this name, whatever job it holds."""
    worker = worker_of(holder)
    return PREFIX + worker if worker else holder


def job_of(holder: str) -> str:
    """Return the id of the job of a remote holder."""
    found = _NAME.fullmatch(holder)
    return found[2] if found is not None else ""
