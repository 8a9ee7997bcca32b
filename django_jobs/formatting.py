"""How times, durations and numbers are written for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from time import time_ns

from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

#: ms by which the store's clock is ahead of this machine's, while a page is rendered: its times are by that clock.
AHEAD: ContextVar[int] = ContextVar("AHEAD", default=0)


def moment(ms: int) -> SafeString | str:
    """Return a stored time as "3 minutes ago", with the exact time as a tooltip; a dash if there is none."""
    return _with_exact(ms, relative)


def elapsed(ms: int) -> SafeString | str:
    """Return how long a stored time has passed, as in "for 3 min 20 s"; otherwise like `moment`."""
    return _with_exact(ms, lambda at: duration(max(0, time_ns() // 1_000_000 + AHEAD.get() - at)))


def _with_exact(ms: int, told: Callable[[int], str]) -> SafeString | str:
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return "—"
    if not ms:
        return "—"
    exact = exactly(at)
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, told(ms))


def exact(ms: int) -> str:
    """Return a stored time in full; a dash if there is none."""
    try:
        return exactly(datetime.fromtimestamp(ms / 1000, UTC)) if ms else "—"
    except (ValueError, OverflowError, OSError, TypeError):
        return "—"


def exactly(at: datetime) -> str:
    """Return date and time to the second, in the current time zone."""
    local = localtime(at)
    return f"{formats.date_format(local, 'SHORT_DATE_FORMAT')} {local:%H:%M:%S}"


def relative(ms: int) -> str:
    """Return the distance from now."""
    now = datetime.now(UTC) + timedelta(milliseconds=AHEAD.get())
    at = datetime.fromtimestamp(ms / 1000, UTC)
    seconds = (now - at).total_seconds()
    if abs(seconds) < 60:
        distance = _("%(n)s s") % {"n": round(abs(seconds))}
    else:
        distance = timesince(min(at, now), max(at, now), depth=1)
    if abs(seconds) < 1:
        return _("now")
    return _("%(time)s ago") % {"time": distance} if seconds > 0 else _("in %(time)s") % {"time": distance}


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun in English, for errors, logs and commands: "1 job", "2 jobs"."""
    return f"{n} {one}" if n == 1 else f"{n} {many or one + 's'}"


def migrate_hint(error: BaseException) -> str:
    """Return what to do if a table is missing, to be put after the text of the error; "" for any other error."""
    text = str(error).lower()
    missing = "no such table" in text or ("does" in text and "exist" in text) or "undefinedtable" in text
    return ". Run `manage.py migrate`" if missing else ""


def call_text(name: str, args: Iterable[object], kwargs: Mapping[str, object]) -> str:
    """Return a call as Python code: `shop.jobs.send_receipt(7, copy=True)`."""
    return f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def sentence(text: object) -> str:
    """Return a text with exactly one full stop at its end.  Errors of others may or may not have one."""
    return f"{str(text).rstrip(' .')}."


def plain(text: str, length: int = 80) -> str:
    """Return one short line without control characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= length else f"{line[: length - 1]}…"


def number(value: object) -> str:
    """Return a whole number with separators of thousands, as the reader's language writes them; other values as text.

    Grouped whatever USE_THOUSAND_SEPARATOR says: with a million jobs a number without separators is misread."""
    if isinstance(value, bool) or not isinstance(value, int):
        return "" if value is None else str(value)
    return str(formats.number_format(value, force_grouping=True))


def duration(ms: float) -> str:
    """Return a duration in at most two units: "340 ms", "2.5 s", "3 min 20 s", "4 h 5 min", "2 d 3 h"."""
    if ms is None or ms < 0:
        return "—"
    if ms < 1:
        return _("%(n)s ms") % {"n": 0}
    if ms < 1000:
        return _("%(n)s ms") % {"n": round(ms)}
    seconds = ms / 1000
    if seconds < 60:
        return _("%(n)s s") % {"n": formats.number_format(round(seconds, 1) if seconds < 10 else round(seconds))}
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return _("%(m)d min %(s)d s") % {"m": minutes, "s": rest}
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return _("%(h)d h %(m)d min") % {"h": hours, "m": minutes}
    return _("%(d)d d %(h)d h") % {"d": hours // 24, "h": hours % 24}
