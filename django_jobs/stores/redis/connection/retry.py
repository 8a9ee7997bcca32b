"""How long a call to Redis is tried: again where that may help, and at once no more where somebody waits."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from django_jobs.stores.redis.connection.errors import DRIVER_ERRORS, is_passing, nobody_listens, translate
from django_jobs.stores.redis.connection.scripts import Script

#: Seconds in which a call ends, one way or the other: no new try starts when the rest could not hold it.
DEADLINE = 5.0
LAST_TRY = 1.8
#: Seconds between tries: a restarting server on one machine is back by then.
PAUSE = 0.05


def persist(where: str, call: Callable[..., Any], *args: Any, urgent: bool = False) -> Any:
    """Call it, and again if it fails for a moment.  Raises StoreUnavailable within DEADLINE, or another StoreError.

    `urgent`: somebody waits who can do without the store.  Where nobody listens he is told at once: nothing is sent."""
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
    """The same call for its next try: a request of it may still be under way (see idempotency.py)."""
    match call:
        case Script(numbered=True) as script, keys, (clock, channel, number, *rest) if not str(number).endswith("+"):
            return script, keys, (clock, channel, f"{number}+", *rest)
    return call
