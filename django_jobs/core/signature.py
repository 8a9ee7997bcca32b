"""The signature of an error: its class, and the last place of the project's own code in its traceback.  If there is no
such place, it has the message without the parts that vary instead.

Jobs that failed with the same signature are one group, and one error of the inbox.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import tempfile
from functools import lru_cache
from pathlib import Path
from types import CodeType, TracebackType
from zlib import crc32

from django_jobs.core.values import Attempt
from django_jobs.exceptions import Retry

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
    if last.frame:
        return _told_apart(kind + b": " + last.frame.encode(errors="replace"))
    first = last.error.encode(errors="replace").lstrip(_SPACES).split(b"\n", 1)[0]
    message = _cut(first).rstrip(_SPACES)
    text = kind + b": " + _VARYING.sub(_ELLIPSIS, message) if message else kind
    return _cut(text).rstrip(_SPACES).decode(errors="replace")


def _told_apart(text: bytes) -> str:
    """Return the text; a long one is cut, and tells by a checksum what it was."""
    text = text.strip(_SPACES)
    if len(text) > LENGTH:
        text = _cut(text, LENGTH - 12).rstrip(_SPACES) + b"\xe2\x80\xa6%08x" % crc32(text)
    return text.decode(errors="replace")


def _short(text: str) -> bytes:
    return _cut(text.encode(errors="replace").replace(b"\n", b" ").lstrip(_SPACES)).rstrip(_SPACES)


def _cut(text: bytes, most: int = LENGTH) -> bytes:
    """Return the first bytes, without a part of a character."""
    if len(text) <= most:
        return text
    last = most
    while last and text[last] & 0xC0 == 0x80:
        last -= 1
    return text[:last]


# -- where an error came from ----------------------------------------------------

#: Characters of a line of code in a frame.
LINE = 100
#: Code that is not the project's, wherever the project is: the standard library, and this package.
_LIBRARIES = tuple(
    os.path.join(os.path.realpath(each), "")
    for each in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parents[1])
)
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")


def cause_of(error: BaseException) -> BaseException:
    """Return the error with which an attempt failed: of a Retry, the error from which it was raised, if any."""
    cause = error.__cause__ if isinstance(error, Retry) else None
    return error if cause is None else cause


def frame_of(error: BaseException, base: str) -> str:
    """Return the last place of the project's own code in the traceback: file, function and line; "" for none.

    `base`: the project's folder.  The text of the line stands for its number, which changes with each release.  Of a
    recursion that was too deep, the place counts at which it began to go in circles: where it ended is an accident."""
    try:
        cause = cause_of(error)
        last = _last_of_project(cause, base)
        if last is None and cause is not error:  # it was made for this Retry, and never raised
            last = _last_of_project(error, base)
        if last is None:
            return ""
        module = last.tb_frame.f_globals.get("__name__")
        return _place(last.tb_frame.f_code, last.tb_lineno, module if isinstance(module, str) else "?", base)
    except Exception:  # an error must be recorded whatever its traceback has
        return ""


def _last_of_project(error: BaseException, base: str) -> TracebackType | None:
    seen: set[CodeType] | None = set() if isinstance(error, RecursionError) else None
    last: TracebackType | None = None
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if _is_own(code.co_filename, base):
            last = entry
            if seen is not None:
                if code in seen:
                    break
                seen.add(code)
        entry = entry.tb_next
    return last


@lru_cache(maxsize=2000)
def _is_own(file: str, base: str) -> bool:
    if not file or file.startswith("<") or _INSTALLED.search(file):
        return False
    path, base = os.path.realpath(file), os.path.join(os.path.realpath(base), "")
    if path.startswith(_LIBRARIES):
        return False
    passing = os.path.join(os.path.realpath(tempfile.gettempdir()), "")  # a file there has another name each time
    return not path.startswith(passing) or (base.startswith(passing) and path.startswith(base))


@lru_cache(maxsize=2000)
def _place(code: CodeType, number: int, module: str, base: str) -> str:
    """Return a place as text.  For a file outside of `base`, the name of its module stands for its path, which says
    where the code is installed."""
    path, base = os.path.realpath(code.co_filename), os.path.join(os.path.realpath(base), "")
    file = path.removeprefix(base).replace(os.sep, "/") if path.startswith(base) else f"{module.replace('.', '/')}.py"
    line = " ".join(linecache.getline(code.co_filename, number).split())[:LINE] or f"line {number}"
    text = f"{file}, in {code.co_qualname}: {line}"
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
