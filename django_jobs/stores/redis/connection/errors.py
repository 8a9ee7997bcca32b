"""Redis errors → ours, each naming what to do.  Driver exceptions end here."""

from __future__ import annotations

import errno
import re

from redis import exceptions as driver

from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable

#: What the driver raises: the errors of its Cluster client are of another family.
DRIVER_ERRORS = (driver.RedisError, driver.RedisClusterException, OSError)
#: The connection is to a server that cannot serve us now (restart, failover): drop it and try another time.
PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "BUSY", "MISCONF", "NOREPLICAS")
#: The same where the driver has taken the word off the text.
_PASSING_TYPES = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ReadOnlyError,
    driver.ClusterDownError,
    driver.TryAgainError,
    OSError,
)
#: Redis 6.2 puts what went wrong inside a script behind its place there: "… @user_script: 1: -READONLY You can't …".
_IN_A_SCRIPT = re.compile(r"@user_script: ?\d+: -(?=[A-Z]+ )")
#: Nobody listens there: a port that refuses, a unix socket that does not exist.
_NOBODY = {errno.ECONNREFUSED, errno.ENOENT}
#: What the driver says of a server that was not started as a node of a Cluster.
NO_CLUSTER = "Cluster mode is not enabled"


class StoreLate(StoreError):
    """The call came after a later one of its channel, and was refused."""


def is_passing(error: Exception) -> bool:
    """Would the same call succeed later, on a new connection?"""
    error = _reason(error)
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError, driver.MaxConnectionsError)):
        return False
    if isinstance(error, driver.RedisClusterException):  # slots that no node has
        return NO_CLUSTER not in str(error)
    return isinstance(error, _PASSING_TYPES) or _said(error).startswith(PASSING)


def nobody_listens(error: BaseException | None) -> bool:
    """Was the connection refused?  Then nothing was sent."""
    cause = None if error is None else error.__cause__ or error.__context__
    # What the driver says is looked at too: any error has a context that was raised where another was being handled.
    return isinstance(cause, OSError) and cause.errno in _NOBODY and " connecting to " in str(error)


def _said(error: Exception) -> str:
    """The server's words, whichever version it has."""
    return _IN_A_SCRIPT.split(str(error))[-1]


def _reason(error: Exception) -> Exception:
    """Why the Cluster client found no node that tells it where the slots are: what the last one said."""
    cause = error.__cause__
    return cause if isinstance(error, driver.RedisClusterException) and isinstance(cause, Exception) else error


def translate(error: Exception, where: str) -> StoreError:
    """The error to raise instead; `where` is the address without password."""
    error = _reason(error)
    text = _said(error)
    if NO_CLUSTER in text:
        return StoreMisconfigured(
            f"Redis at {where} is no Cluster. Name it in DJANGO_JOBS['STORE'] as redis://… instead of redis+cluster://…"
        )
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
    if "LATE: " in text:  # raised in lua/lib/answers.lua; servers put their own words round it
        return StoreLate(f"Redis at {where} refused a call that came too late: {text}")
    if "WRONGTYPE" in text:
        return StoreCorrupt(f"A key of ours holds another type ({text}). `manage.py jobs doctor` tells which.")
    if is_passing(error):
        return StoreUnavailable(f"Redis at {where} cannot be reached ({text or type(error).__name__}).")
    return StoreError(f"Redis at {where} answered: {text}")
