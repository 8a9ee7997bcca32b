"""How long a call to Redis is repeated: as long as that may help, but not if an urgent call was refused."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing, nobody_listens, translate
from django_jobs.stores.redis.connection.scripts import Script

#: Seconds after which a call has ended, with or without success: no try starts later than LAST_TRY.
DEADLINE = 5.0
LAST_TRY = 1.8
#: Seconds between tries: a server that restarts on the same machine is back by then.
PAUSE = 0.05


def persist(where: str, call: Callable[..., Any], *args: Any, urgent: bool = False) -> Any:
    """Make the call, and repeat it after errors that may pass.  Raises StoreUnavailable within DEADLINE, or another
    StoreError.

    `urgent`: the caller can do without the store.  If no server listens, it gets the error at once: nothing was
    sent."""
    started, tried = monotonic(), False
    while True:
        try:
            return call(*args)
        except DRIVER_ERRORS as error:
            refused = urgent and not tried and nobody_listens(error)
            if refused or not is_passing(error) or monotonic() - started > LAST_TRY:
                raise translate(error, where) from error
        tried = True
        args = _in_doubt(args)
        sleep(PAUSE)


def _in_doubt(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same call for its next try, marked: an earlier request may still be under way (see idempotency.py)."""
    match call:
        case Script(numbered=True) as script, keys, (clock, channel, number, *rest) if not str(number).endswith("+"):
            return script, keys, (clock, channel, f"{number}+", *rest)
    return call
