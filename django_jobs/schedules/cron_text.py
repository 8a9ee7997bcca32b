"""Checks the text of a cron expression, and rewrites it so that all versions of croniter agree."""

from __future__ import annotations

import re

from django_jobs.exceptions import InvalidCron
from django_jobs.formatting import counted

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
#: Highest value of each field, seconds first.
HIGHEST = (59, 59, 23, 31, 12, 6)
FIELD = re.compile(r"[0-9A-Za-z*,/#?-]+")
NAMES = re.compile(r"(?<![A-Za-z])(?!(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|"
                   r"sun|mon|tue|wed|thu|fri|sat|l)(?![A-Za-z]))[A-Za-z]+", re.IGNORECASE)  # fmt: skip


def normalise(text: str) -> str:
    """Return five or six fields that croniter 6 and 7 read alike.  Raises InvalidCron for anything else."""
    stripped = text.strip() if isinstance(text, str) else ""
    if stripped.startswith("@"):
        return _alias(stripped)
    fields = stripped.split()
    if len(fields) not in {5, 6}:
        raise InvalidCron(
            f"The cron expression {text!r} has {counted(len(fields), 'field')}. Write five (minute, hour, day of "
            "month, month, day of week), or six with seconds first."
        )
    highest = HIGHEST[-len(fields) :]
    return " ".join(_field(field, top, text) for field, top in zip(fields, highest, strict=True))


def _alias(text: str) -> str:
    try:
        return ALIASES[text.lower()]
    except KeyError:
        known = ", ".join(ALIASES)
        raise InvalidCron(
            f"The cron expression {text!r} is not known. Use {known}, @every 90s, or write "
            "five fields, such as '*/5 * * * *'."
        ) from None


def _field(field: str, highest: int, text: str) -> str:
    if not FIELD.fullmatch(field):
        raise InvalidCron(
            f"The cron expression {text!r} has {field!r}, which no field may contain. "
            "Use numbers, names such as mon or jan, and * , - / # L."
        )
    if wrong := NAMES.search(field):
        if wrong[0] in "HhRr":
            remedy = "Each process would read it in its own way: write the time you mean, or use jitter."
        else:
            remedy = "Write jan to dec, mon to sun, or numbers."
        raise InvalidCron(
            f"The cron expression {text!r} has {wrong[0]!r}, which is neither a day nor a month. {remedy}"
        )
    return ",".join(_part(part, highest, text) for part in field.split(","))


def _part(part: str, highest: int, text: str) -> str:
    """Rewrite what croniter misreads: `5-5` (as every value), and `5/15` where 5 is the highest (6 and 7 differ)."""
    values, slash, step = part.partition("/")
    first, dash, last = values.lower().partition("-")
    if dash and first == last:
        return first
    if not slash or dash or values in {"*", "?"}:
        return part
    if not values.isdigit() or int(values) > highest:
        raise InvalidCron(
            f"The cron expression {text!r} has {part!r}: a step needs a number it can start at. "
            f"Write a range, such as '0-{highest}/2'."
        )
    return values if int(values) == highest else f"{values}-{highest}/{step}"
