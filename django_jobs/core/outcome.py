"""What follows an attempt.  Pure: no clock, no store, no Django.  Worker and parent process both use it.

Long because all outcomes, and what decides between them, are here."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf
from types import CodeType, TracebackType
from typing import Any, NamedTuple, Protocol

from django_jobs.core.signature import cause_of
from django_jobs.core.values import Attempt
from django_jobs.exceptions import Discard, Fail, Retry, Snooze

DAY_MS = 86_400_000
#: The longest delay: ten years.  A wrong unit must not produce a time that no clock can show.
MAX_DELAY_MS = 3650 * DAY_MS
#: At most this many bytes of text are kept per failed attempt: one large error must not fill the store.
MAX_ERROR_BYTES = 2 * 1024
MAX_TRACEBACK_BYTES = 12 * 1024
#: Sensitive values are searched for in so much of a text; far more than is kept.
MOST_SCRUBBED = 1024 * 1024

#: How many frames of a traceback are written: the last ones.
FRAMES = 30
#: file, line, function, instruction → its code, and what a traceback says of this place; at most MOST_PLACES.
_places: dict[tuple[str, int, str, int], tuple[CodeType, str]] = {}
MOST_PLACES = 2000

Backoff = Sequence[float] | Callable[[int, BaseException], float] | None


class Succeeded(NamedTuple):
    """The attempt succeeded.  `result` is the JSON text of the value, b"" for None."""

    result: bytes = b""


class RetryIn(NamedTuple):
    """Try again in `delay` ms.  `record`: with this record; b"" = with the same.  `queue`: there; "" = here."""

    delay: int
    attempt: Attempt
    record: bytes = b""
    queue: str = ""


class SnoozeFor(NamedTuple):
    """Run again in `delay` ms, not counted as an attempt.  `pauses`: the reason to pause its type until a person
    resumes it; "" = none.  `begun`: False if the job has not begun, so that it can still expire."""

    delay: int
    pauses: str = ""
    begun: bool = True


class Parked(NamedTuple):
    """Wait for a worker that knows the name, not counted as an attempt.  `knows`: the digest of this process."""

    knows: str


class Refiled(NamedTuple):
    """Wait again at once with another record, not counted as an attempt: its limit is another one since a deploy."""

    record: bytes


class Cancelled(NamedTuple):
    """End now, without going to dead."""

    attempt: Attempt


class Dead(NamedTuple):
    """No further attempt."""

    attempt: Attempt


class HandedOver(NamedTuple):
    """The attempt continues elsewhere: `holder` has the claim from now on, for `lease` ms.  A push job returns this."""

    holder: str
    lease: int


Outcome = Succeeded | RetryIn | SnoozeFor | Parked | Refiled | Cancelled | Dead | HandedOver


class Policy(Protocol):
    """The part of a job definition that decides what a failure means."""

    @property
    def retry_on(self) -> tuple[type[BaseException], ...]: ...
    @property
    def discard_on(self) -> tuple[type[BaseException], ...]: ...


class AnyFailure:
    """The policy of a job whose definition is not known here: every option has its default."""

    backoff: Backoff = None
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    discard_on: tuple[type[BaseException], ...] = ()


def after_failure(
    error: BaseException,
    policy: Policy,
    attempt: Attempt,
    *,
    backoff: Backoff = None,
    max_attempts: int,
    on_exhausted: str,
    at_most_once: bool,
    jitter: float,
    earlier: int = 0,
) -> Outcome:
    """Decide what happens to a job whose attempt raised `error`.

    `attempt` is the line for the log, made by `failed_attempt`; `jitter` is a random number in 0…1; `earlier`: how
    many attempts do not count any more."""
    if at_most_once:
        max_attempts = 1
        if isinstance(error, Snooze | Retry):
            return _exhausted(attempt._replace(error=_refused(error, attempt.error)), on_exhausted)
    try:
        if isinstance(error, Snooze):
            return SnoozeFor(milliseconds(error.in_))
        asked = milliseconds(error.in_) if isinstance(error, Retry) and error.in_ is not None else None
    except Exception as wrong:  # of a __repr__, too
        asked, attempt = None, attempt._replace(error=f"{attempt.error} ({clean(wrong, 200)})")
    if isinstance(error, (Discard, *policy.discard_on)):
        return Cancelled(attempt._replace(outcome="discarded"))
    if isinstance(error, Fail):
        return Dead(attempt)
    if isinstance(error, Retry):
        attempt = attempt._replace(outcome="retried")
    elif not _is_retried(error, policy.retry_on):
        return Dead(attempt)
    number = attempt.attempt - earlier
    if number >= max_attempts:
        return _exhausted(attempt, on_exhausted)
    if asked is not None:
        return RetryIn(asked, attempt)
    try:
        return RetryIn(backoff_ms(backoff, number, error, jitter), attempt)
    except BaseException as wrong:
        # backoff is user code.  If it is wrong, the job still needs a next attempt and its author a note.
        note = f"{attempt.error} (backoff failed: {type(wrong).__name__}: {clean(wrong, 200)})"
        return RetryIn(formula_ms(number, jitter), attempt._replace(error=note))


#: What to do about a job whose name is not known here, in addition to what UnknownJob says.
WAITS_FOR_ITS_WORKER = "It waits for a worker that knows it. Restart workers that run older code."


def _exhausted(attempt: Attempt, on_exhausted: str) -> Outcome:
    return Cancelled(attempt._replace(outcome="discarded")) if on_exhausted == "discard" else Dead(attempt)


def _refused(error: BaseException, reason: str) -> str:
    return (
        f"{type(error).__name__} in a job with delivery='at_most_once', which is never started twice. Raise Fail or "
        f"Discard instead, or remove delivery. The reason was: {reason}"
    )


def _is_retried(error: BaseException, retry_on: tuple[type[BaseException], ...]) -> bool:
    # SystemExit and similar are not Exceptions, yet a job that ends that way has failed like any other.
    return isinstance(error, retry_on) or (not isinstance(error, Exception) and Exception in retry_on)


def backoff_ms(backoff: Any, failures: int, error: BaseException, jitter: float) -> int:
    """Return the milliseconds until the attempt after failure number `failures` (1 is the first)."""
    if backoff is None:
        return formula_ms(failures, jitter)
    if callable(backoff):
        return milliseconds(backoff(failures, error))
    return milliseconds(backoff[min(failures, len(backoff)) - 1])


def formula_ms(failures: int, jitter: float) -> int:
    """Return n⁴ + 15 s plus up to 10·(n + 1) s, at most a day: 16 s, 31 s, 96 s, 4 min, 11 min, 22 min, 40 min…"""
    return min(int((failures**4 + 15 + jitter * 10 * (failures + 1)) * 1000), DAY_MS)


def milliseconds(delay: Any) -> int:
    """Convert seconds or a timedelta to ms.  Raises ValueError for anything that is not a delay."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < inf:
        raise ValueError(f"a delay must be 0 seconds or more, or a timedelta, not {delay!r:.100}")
    return int(min(seconds, MAX_DELAY_MS / 1000) * 1000)


# -- an error as text ----------------------------------------------------------


def failed_attempt(
    error: BaseException,
    *,
    number: int,
    at: int,
    run_ms: int = -1,
    worker: str = "",
    outcome: str = "failed",
    scrub: Callable[[str], str] | None = None,
    release: str = "",
    frame: str = "",
) -> Attempt:
    """Return the line of the attempts log for `error`; it can be stored and shown whatever the error contains.

    `scrub` takes the values of sensitive arguments out of a text, before it is cut: half of a value is a value, too."""
    cause = cause_of(error)
    kind = type(cause)
    # Code that ended the attempt on purpose needs no traceback; a job that snoozes hourly would collect hundreds.
    trace = "" if isinstance(cause, Retry | Snooze | Discard) else _trace(error, scrub)
    name = f"{kind.__module__}.{kind.__qualname__}"
    said = clean(_said(cause, scrub), MAX_ERROR_BYTES)
    return Attempt(number, outcome, at, run_ms, worker, clean(name, 200), said, trace, release, frame)


def _said(error: BaseException, scrub: Callable[[str], str] | None) -> object:
    if scrub is None:
        return error
    return scrub(clean(error, MOST_SCRUBBED))


def _trace(error: BaseException, scrub: Callable[[str], str] | None) -> str:
    try:
        lines = formatted(error)
    except BaseException as unprintable:  # of a __str__, too
        return f"(the traceback cannot be shown: {type(unprintable).__name__})"
    text = "".join(lines[-200:])
    return clean(scrub(text[-MOST_SCRUBBED:]) if scrub else text, MAX_TRACEBACK_BYTES, keep_end=True)


def formatted(error: BaseException) -> list[str]:
    """Return what `traceback.format_exception` returns with the last FRAMES frames, several times as fast if jobs fail
    alike: most of the time goes into the marks under the part of a line that failed, so the text of each place in the
    code is kept."""
    frames = None if _has_more(error) else _frames(error.__traceback__)
    if frames is None:
        return traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES)
    return [*frames, *_last_lines(error)]


#: Their text has more than what str() returns: a suggestion, or the place in a file.
_EXPLAINED = (NameError, AttributeError, ImportError, SyntaxError)


def _last_lines(error: BaseException) -> list[str]:
    """Return what `traceback.format_exception_only` returns, at a fifth of its price in the usual case."""
    kind, module = type(error), type(error).__module__
    if isinstance(error, _EXPLAINED) or hasattr(error, "__notes__") or not isinstance(module, str):
        return traceback.format_exception_only(kind, error)
    try:
        said = str(error)
    except BaseException:
        return traceback.format_exception_only(kind, error)
    name = kind.__qualname__ if module in ("__main__", "builtins") else f"{module}.{kind.__qualname__}"
    return [f"{name}: {said}\n" if said else f"{name}\n"]


def _has_more(error: BaseException) -> bool:
    """Is there more to write than its frames and itself?  For an unknown name, Python looks into the last frame."""
    if error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        return True
    return isinstance(error, BaseExceptionGroup | SyntaxError | NameError)


def _frames(first: TracebackType | None) -> list[str] | None:
    """Return the part about the frames; None if there are none, or a line follows itself: Python shortens that."""
    entries: list[TracebackType] = []
    entry = first
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    lines = ["Traceback (most recent call last):\n"]
    before = None
    for entry in entries[-FRAMES:]:
        code = entry.tb_frame.f_code
        line = code.co_filename, entry.tb_lineno, code.co_name
        if line == before:
            return None
        before = line
        place = *line, entry.tb_lasti
        known = _places.get(place)
        if known is None or known[0] is not code:
            if len(_places) >= MOST_PLACES:
                _places.clear()
            known = _places[place] = code, "".join(traceback.format_tb(entry, limit=1))
        lines.append(known[1])
    return lines if entries else None


#: Control characters except tab and newline: an error message must not control a terminal or page.
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


def clean(value: object, limit: int, *, keep_end: bool = False) -> str:
    """Return any value as text: at most `limit` bytes of UTF-8, without control characters and lone surrogates."""
    try:
        text = value if isinstance(value, str) else str(value)
    except BaseException as unprintable:
        text = f"(str() of this {type(value).__name__} raised {type(unprintable).__name__})"
    text = text[-limit:] if keep_end else text[:limit]
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # the usual text, at a tenth of the price
    data = text.translate(_CONTROLS).encode("utf-8", "replace")
    if len(data) > limit:
        data = data[-limit:] if keep_end else data[:limit]
    return data.decode("utf-8", "ignore")
