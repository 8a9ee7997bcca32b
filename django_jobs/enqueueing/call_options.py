"""What one call, or enqueue middleware, may say of its job, and how it is checked; each option of `using` that `@job`
does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_jobs.conf import host_settings
from django_jobs.core.options.checks import UNIQUE_MODES, or_none, seconds, whole
from django_jobs.core.options.declared import CHANGEABLE, OPTIONS, Option, check_options
from django_jobs.enqueueing.request import NewJobRequest
from django_jobs.exceptions import InvalidArguments
from django_jobs.serialization.checked import LATEST, loads

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_LONGEST_DELAY = 100 * 366 * 86_400


def check_id(id: Any) -> str:
    """Return the id as text.  Raises InvalidArguments if it is not valid: it becomes part of keys and addresses."""
    if isinstance(id, UUID):
        return str(id)
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidArguments(f"job_id={id!r}: use 1 to 128 letters, digits and _ . : -")
    return id


def moment(value: Any, name: str) -> int:
    """Return an aware datetime as ms since the epoch.  Raises InvalidArguments for anything else."""
    if not isinstance(value, datetime):
        raise InvalidArguments(f"{name}={value!r}: use an aware datetime, as in timezone.now() + timedelta(hours=1).")
    if value.utcoffset() is None:
        raise InvalidArguments(f"{name}={value!r} has no time zone. {_how_to_be_aware()}")
    ms = round(value.timestamp() * 1000)
    if ms <= 0:
        raise InvalidArguments(f"{name}={value!r}: use a time after 1970.")
    return ms


def _how_to_be_aware() -> str:
    if host_settings().use_tz:
        return "Use an aware datetime, as in django.utils.timezone.make_aware(…)."
    return (
        "USE_TZ is False, so timezone.now() has none. Use django.utils.timezone.make_aware(…), datetime.now(UTC), "
        "or enqueue_in() with a delay."
    )


def delay_ms(value: Any) -> int:
    """Return seconds or a timedelta as ms.  Raises InvalidArguments for a negative delay or anything else."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
        raise InvalidArguments(f"delay={value!r}: use seconds (a number) or a timedelta.")
    if not 0 <= number <= _LONGEST_DELAY:
        raise InvalidArguments(f"delay={value!r}: use 0 seconds or more, and at most 100 years.")
    return round(number * 1000)


def check_patience(value: Any) -> float | None:
    """Return `block_timeout`: seconds ≥ 0, or None to wait without limit.  Raises InvalidArguments."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        return value
    raise InvalidArguments(f"block_timeout={value!r}: use 0 seconds or more, or None to wait without a limit.")


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidArguments(f"on_commit={value!r}: use True, False, or None for the setting ON_COMMIT.")


def _outbox(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidArguments(f"outbox={value!r}: use False to keep the job out of the outbox, or True.")


def _meta(value: Any) -> dict[str, Any]:
    try:
        if (
            isinstance(value, dict)
            and loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) is not None
        ):
            return value
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidArguments(f"meta={value!r:.200}: use a dict of JSON values.")


# fmt: off
CALL_OPTIONS: Mapping[str, Option[Any]] = {
    "job_id": Option(
        None, or_none(check_id), "str | UUID | None", "your own id: a second job with that id is not added",
    ),
    "run_at": Option(
        None, lambda value: 0 if value is None else moment(value, "run_at"), "datetime | None",
        "when the job may first run (an aware datetime)",
    ),
    "expires_at": Option(
        None, or_none(lambda value: moment(value, "expires_at")), "datetime | None",
        "when a job that has not started is expired (an aware datetime)",
    ),
    "on_commit": Option(
        None, or_none(_truth), "bool | None",
        "whether a call inside `atomic()` waits for the commit; `None`: as `ON_COMMIT` says",
    ),
    "outbox": Option(
        True, _outbox, "bool", "`False`: keep the job out of the outbox (`OUTBOX`)",
    ),
    "block_timeout": Option(
        None, check_patience, "float | None", 'seconds to wait for room in a queue with `ON_FULL = "block"`',
    ),
    "meta": Option(
        {}, _meta, "dict[str, Any]", "JSON values that are stored with the job, for middleware and for the job",
    ),
}
# fmt: on


def _arguments(value: Any) -> Any:
    if isinstance(value, list | tuple) or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        return value
    raise ValueError("use a list of arguments, or a dict of arguments by name.")


def _unique(value: Any) -> Any:
    return value if value is None or value in UNIQUE_MODES else seconds(value)


_time = or_none(whole(0, LATEST))
#: Fields of a request that enqueue middleware may set, and their checks.  `encode` checks the others.
_SET_BY_MIDDLEWARE: Mapping[str, Any] = {
    "args": _arguments,
    "kwargs": _arguments,
    "run_at": whole(0, LATEST),
    **dict.fromkeys(("run_in", "expires_at", "expires_in"), _time),
    "id": CALL_OPTIONS["job_id"].check,
    "max_attempts": or_none(OPTIONS["max_attempts"].check),
    "unique": _unique,
    **{name: OPTIONS[name].check for name in ("queue", "priority", "unique_on", "on_conflict")},
    **{name: CALL_OPTIONS[name].check for name in ("on_commit", "outbox", "block_timeout")},
    "meta": or_none(_meta),
}


def check_request(request: NewJobRequest) -> None:
    """Check what enqueue middleware may have set: a job with such a value would be refused by the store, or be dead as
    unreadable.  Raises InvalidArguments with the value and the remedy."""
    for name, check in _SET_BY_MIDDLEWARE.items():
        value = getattr(request, name)
        try:
            setattr(request, name, check(value))
        except InvalidArguments:
            raise
        except (ValueError, TypeError) as error:
            raise InvalidArguments(f"{request.name}: {name}={value!r:.200}: {error}") from error
    check_options(request.changed or {}, request.name, CHANGEABLE)
