"""The signature of an error: its class and its message without the parts that vary.

Jobs that failed with the same signature are one group.
"""

from __future__ import annotations

import re

from django_jobs.core.values import Attempt

#: The parts in which two messages of the same error differ: quoted text, numbers, long hexadecimal words.
_VARYING = re.compile(rb"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3,6}\b|0x[0-9a-fA-F]+|\d+(?:\.\d+)*")
#: Bytes: enough to tell errors apart, and short enough for an index of them.
LENGTH = 160
#: The signature of jobs without an error, such as one that was killed before it ran.
NO_ERROR = "(none)"
_SPACES = b" \t\n\r\v\f"
_ELLIPSIS = "…".encode()


def signature(last: Attempt | None) -> str:
    """Return the signature of a job whose attempts log ends with this attempt.

    It is never empty and has no space at its ends, because it is a filter in an address."""
    if last is None:
        return NO_ERROR
    kind = _short(last.error_name or last.outcome) or NO_ERROR.encode()
    first = last.error.encode(errors="replace").lstrip(_SPACES).split(b"\n", 1)[0]
    message = _cut(first).rstrip(_SPACES)
    text = kind + b": " + _VARYING.sub(_ELLIPSIS, message) if message else kind
    return _cut(text).rstrip(_SPACES).decode(errors="replace")


def _short(text: str) -> bytes:
    return _cut(text.encode(errors="replace").lstrip(_SPACES)).rstrip(_SPACES)


def _cut(text: bytes) -> bytes:
    """Return the first LENGTH bytes, without a part of a character."""
    if len(text) <= LENGTH:
        return text
    last = LENGTH
    while last and text[last] & 0xC0 == 0x80:
        last -= 1
    return text[:last]
