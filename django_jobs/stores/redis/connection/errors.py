"""Translates errors of redis-py into store errors that say what to do.  Callers see no error of redis-py."""

from __future__ import annotations

import errno
import re

from redis import exceptions as driver

from django_jobs.exceptions import StoreCorrupt, StoreError, StoreFull, StoreMisconfigured, StoreUnavailable
from django_jobs.formatting import sentence

#: The errors of redis-py.  Those of its Cluster client have a base class of their own.
DRIVER_ERRORS = (driver.RedisError, driver.RedisClusterException, OSError)
#: The server cannot serve the call now (restart, failover): disconnect and try again.
PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "BUSY", "MISCONF", "NOREPLICAS")
#: The same errors, where redis-py has removed the code from the text.
_PASSING_TYPES = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ReadOnlyError,
    driver.ClusterError,  # a slot moves, and redis-py has repeated the call for half a second
    driver.TryAgainError,
    OSError,
)
#: Redis 6.2 puts the position in a script before the error of a command: "… @user_script: 1: -READONLY You can't …".
_IN_A_SCRIPT = re.compile(r"@user_script: ?\d+: -(?=[A-Z]+ )")
#: No server listens: the port refuses connections, or the unix socket does not exist.
_NOBODY = {errno.ECONNREFUSED, errno.ENOENT}
#: What servers say if the user may not run a command: alone, and in a script (Redis 7.0, and later versions).
NO_PERMISSION = ("NOPERM", "user executing the script", "ACL failure in script")
#: What the server says if it shall add to something that is no number, or too large.
NO_NUMBER = ("is not an integer", "would overflow", "not a valid float")
#: What the server says if it was not started as a node of a Cluster.
NO_CLUSTER = "cluster support disabled"
#: What redis-py says for every error of a node that was asked for the slots.
_NOT_ASKED = "Cluster mode is not enabled"

#: What a server says that runs and cannot serve the call now → what to do.
_REMEDIES = {
    "read only replica": "DJANGO_JOBS['STORE'] must name the primary or, if it changes, the Sentinels.",
    "NOREPLICAS": "Fewer replicas are connected to it than min-replicas-to-write demands: check these.",
    "MISCONF": "It cannot write to its disk: its log says why.",
    "loading the dataset": "It has been started and reads its data: wait.",
    "Link with MASTER": "It is a replica that has lost its primary: check that one.",
}


class StoreLate(StoreError):
    """The server refused the call because a later call of its channel had come first."""


def is_passing(error: Exception) -> bool:
    """Return whether the same call may succeed later, on a new connection."""
    error = _reason(error)
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError, driver.MaxConnectionsError)):
        return False
    if isinstance(error, driver.RedisClusterException):  # slots that no node covers
        return True
    return isinstance(error, _PASSING_TYPES) or _said(error).startswith(PASSING)


def nobody_listens(error: BaseException | None) -> bool:
    """Return whether the connection was refused: then nothing was sent."""
    cause = None if error is None else error.__cause__ or error.__context__
    # The text is checked, too: an error that is raised in an `except` block has the handled error as its context.
    return isinstance(cause, OSError) and cause.errno in _NOBODY and " connecting to " in str(error)


def _said(error: Exception) -> str:
    """Return the server's error text, the same for all versions."""
    return _IN_A_SCRIPT.split(str(error))[-1]


def _reason(error: Exception) -> Exception:
    """Return the error of the last node if the Cluster client found no node that knows the slots."""
    while isinstance(error, driver.RedisClusterException):
        cause = error.__cause__ or (error.__context__ if _NOT_ASKED in str(error) else None)
        if not isinstance(cause, Exception):
            break
        error = cause
    return error


def translate(error: Exception, where: str) -> StoreError:
    """Return the error to raise instead; `where` is the address without the password."""
    error = _reason(error)
    text = _said(error)
    if NO_CLUSTER in text:
        return StoreMisconfigured(
            f"Redis at {where} is not a Cluster. In DJANGO_JOBS['STORE'], write redis://… instead of redis+cluster://…"
        )
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)) or text.startswith(
        ("NOAUTH", "WRONGPASS")
    ):
        return StoreMisconfigured(
            f"Redis at {where} refuses the user or password: {sentence(text)} Correct DJANGO_JOBS['STORE']."
        )
    if isinstance(error, driver.NoPermissionError) or any(said in text for said in NO_PERMISSION):
        return StoreMisconfigured(
            f"The Redis user lacks a permission: {sentence(text)} "
            "docs/howto/security.md lists what producers and workers need."
        )
    if isinstance(error, driver.OutOfMemoryError) or "OOM" in text:
        return StoreFull(
            f"Redis at {where} has reached maxmemory. Nothing was stored. Workers continue and free memory. "
            "Raise maxmemory, or lower HISTORY and DEAD."
        )
    if "LATE: " in text:  # raised in lua/lib/calls/answers.lua; servers add text around it
        return StoreLate(f"Redis at {where} refused a call that came too late: {text}")
    if any(said in text for said in NO_NUMBER):
        return StoreCorrupt(f"A key holds something else where a number belongs ({text}).")
    if "WRONGTYPE" in text:
        return StoreCorrupt(f"A key holds data of the wrong type ({text}). `manage.py jobs doctor` shows which one.")
    if remedy := next((remedy for said, remedy in _REMEDIES.items() if said in text), None):
        return StoreUnavailable(f"Redis at {where} runs and refuses the call: {sentence(text)} {remedy}")
    if is_passing(error):
        return StoreUnavailable(f"Redis at {where} cannot be reached ({text or type(error).__name__}). {_remedy(text)}")
    return StoreError(f"Redis at {where} answered with an error: {text}")


def _remedy(text: str) -> str:
    """What to check when no connection can be made."""
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return (
            "DJANGO_JOBS['STORE'] must name the server as its certificate does. "
            "With ssl_check_hostname=no after the ?, names are not compared."
        )
    if text.startswith("No master found") and any(said in text for said in ("Authentication", "NOAUTH", "Permission")):
        return "Check the options sentinel_username and sentinel_password after the ? of DJANGO_JOBS['STORE']."
    if "SSL" in text or "certificate" in text.lower():
        return "Check the options ssl_ca_certs, ssl_certfile and ssl_keyfile after the ? of DJANGO_JOBS['STORE']."
    return "Check that the server runs and that DJANGO_JOBS['STORE'] names it."
