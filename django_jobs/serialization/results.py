"""The stored form of a returned value, or the reason why it is missing.

A function that returned has done its work.  Nothing in this module raises, so the job succeeds in any case.
"""

from __future__ import annotations

import json
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.exceptions import Fail, PayloadError
from django_jobs.formatting import counted
from django_jobs.serialization.arguments import dump_value, load_value
from django_jobs.serialization.checked import Unreadable, loads

#: First bytes of a text that is stored instead of a result.  No value starts like this: json_types.py tags such dicts.
_MISSING = b'{"$missing":'
#: First bytes of a result that names the worker process: {"$by":["name",value]}.  No value starts like this either.
_BY = b'{"$by":['
#: Maximum characters of a reason: it may quote the returned value.
_LONGEST_REASON = 500


class MissingResult:
    """Stands for a missing result and says why: `str(result)`.  It is false, like None."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason

    def __repr__(self) -> str:
        return f"<MissingResult: {self.reason}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MissingResult) and self.reason == other.reason

    def __hash__(self) -> int:
        return hash(self.reason)


def dump_result(value: Any, worker: str | None = None) -> tuple[bytes, str]:
    """Return what to store for a returned value, and why it is missing ("" if it is not).

    With `worker`, the stored bytes name the worker, also for None."""
    if worker is not None:
        stored, why = (b"null", "") if value is None else dump_result(value)
        return (stored, why) if why else (_BY + json.dumps(worker).encode() + b"," + stored + b"]}", "")
    if value is None:
        return b"", ""
    try:
        stored = dump_value(value, "result")
        limit = get_settings().max_payload
        if len(stored) <= limit:
            return stored, ""
        why = f"The result takes {counted(len(stored), 'byte')}; MAX_PAYLOAD is {limit}. Return a reference instead."
    except BaseException as error:  # an encoder or a __repr__ in the value may raise anything
        why = _why(value, error)
    return _MISSING + json.dumps(why).encode() + b"}", why


def load_result(stored: bytes) -> Any:
    """Return the value, or a MissingResult.  `stored` is not empty."""
    stored = without_worker(stored)
    why = why_missing(stored)
    if why is not None:
        return MissingResult(why)
    try:
        return load_value(stored)
    except (Fail, PayloadError) as error:  # a model instance in it, or its model, is gone since
        return MissingResult(str(error))


def worker_of(stored: bytes) -> str:
    """Return the worker process that the result names; "" if it names none."""
    return _parts(stored)[0]


def without_worker(stored: bytes) -> bytes:
    """Return the result without the worker's name.  It may have been cut for a page."""
    return _parts(stored)[1]


def _parts(stored: bytes) -> tuple[str, bytes]:
    if not stored.startswith(_BY):
        return "", stored
    try:
        text = stored[len(_BY) :].decode(errors="ignore")
        worker, end = json.JSONDecoder().raw_decode(text)
        return str(worker), text[end + 1 :].removesuffix("]}").encode()
    except (ValueError, RecursionError):  # cut within the name
        return "", b""


def why_missing(stored: bytes | None) -> str | None:
    """Return why the result is missing; None if it is not."""
    if not stored or not stored.startswith(_MISSING):
        return None
    try:
        return str(loads(stored)["$missing"])
    except (Unreadable, LookupError, TypeError):  # cut for a page
        return stored[len(_MISSING) :].decode(errors="replace").strip(' "}')


def _why(value: Any, error: BaseException) -> str:
    kind = type(value)
    try:
        if isinstance(error, PayloadError):
            return str(error).replace(" Pass ", " Return ")[:_LONGEST_REASON]
    except BaseException:  # the text quotes the value, whose __repr__ may raise anything
        pass
    return (
        f"The result is of type {kind.__module__}.{kind.__qualname__}; encoding it raised {type(error).__qualname__}."
    )
