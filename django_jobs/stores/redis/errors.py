"""Redis errors → ours, each naming what to do.  Driver exceptions end here."""

from __future__ import annotations

from redis import exceptions as driver

from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable

#: The connection is to a server that cannot serve us now (restart, failover): drop it and try another time.
PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "BUSY", "MISCONF", "NOREPLICAS")


def is_passing(error: Exception) -> bool:
    """Would the same call succeed later, on a new connection?"""
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError, driver.MaxConnectionsError)):
        return False
    if isinstance(error, (driver.ConnectionError, driver.TimeoutError, driver.ReadOnlyError, OSError)):
        return True
    return str(error).startswith(PASSING)


def translate(error: Exception, where: str) -> StoreError:
    """The error to raise instead; `where` is the address without password."""
    text = str(error)
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)) or text.startswith(
        ("NOAUTH", "WRONGPASS")
    ):
        return StoreMisconfigured(
            f"Redis at {where} refuses the user or password: {text}. Correct DJANGO_JOBS['STORE']."
        )
    if isinstance(error, driver.NoPermissionError) or "NOPERM" in text or "user executing the script" in text:
        return StoreMisconfigured(
            f"The Redis user lacks a permission: {text}. docs/howto/security.md lists what producers and workers need."
        )
    if isinstance(error, driver.OutOfMemoryError) or "OOM" in text:
        return StoreFull(
            f"Redis at {where} has reached maxmemory; nothing was stored. Workers go on and free some; "
            "raise maxmemory, or lower HISTORY and DEAD."
        )
    if "WRONGTYPE" in text:
        return StoreCorrupt(f"A key of ours holds another type ({text}). `manage.py jobs doctor` tells which.")
    if is_passing(error):
        return StoreUnavailable(
            f"Redis at {where} cannot be reached ({text or type(error).__name__}). The job may or may not exist; "
            "enqueue with the same job_id is safe to repeat."
        )
    return StoreError(f"Redis at {where} answered: {text}")
