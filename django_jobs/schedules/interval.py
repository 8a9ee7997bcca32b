"""Times that no cron expression says: an interval, `@every 90s`, and a single time, `@at 2026-12-01T08:00`.

Both are written in the place of a cron expression, so that a schedule has one text that says when it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from django_jobs.exceptions import InvalidCron, InvalidSchedule

#: There is no further run.
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
#: Seconds: ten years.  A longer interval is more likely a wrong unit.
LONGEST = 3650 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PARTS = re.compile(r"(\d{1,9})([smhdw])")
_EVERY = re.compile(rf"(?:{_PARTS.pattern})+")


@dataclass(frozen=True, slots=True)
class Every:
    """Each multiple of so many seconds since 1970 (UTC): the same times in every process, whatever was stored."""

    seconds: int

    def next(self, after: datetime, zone: tzinfo) -> datetime:
        """Return the first time later than `after`."""
        return datetime.fromtimestamp((_floor(after) // self.seconds + 1) * self.seconds, UTC)

    def latest(self, after: datetime, until: datetime, zone: tzinfo, limit: int) -> list[datetime]:
        """Return the last `limit` times later than `after` and not later than `until`, oldest first."""
        last = _floor(until) // self.seconds
        first = max(_floor(after) // self.seconds + 1, last - limit + 1)
        return [datetime.fromtimestamp(number * self.seconds, UTC) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class At:
    """One moment.  Without an offset, it is a wall-clock time in the zone of the schedule."""

    moment: datetime

    def next(self, after: datetime, zone: tzinfo) -> datetime:
        """Return the moment, or NEVER if it is not later than `after`."""
        moment = self.moment if self.moment.tzinfo else self.moment.replace(tzinfo=zone)
        return moment.astimezone(UTC) if moment > after else NEVER

    def latest(self, after: datetime, until: datetime, zone: tzinfo, limit: int) -> list[datetime]:
        """Return the moment if it is later than `after` and not later than `until`."""
        moment = self.next(after, zone)
        return [moment] if moment <= until else []


@lru_cache(maxsize=1024)
def read(text: str) -> Every | At | None:
    """Return what the text says; None if it is neither an interval nor a single time.  Raises InvalidCron."""
    kind, _, rest = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")
    if kind == "@every":
        seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PARTS.findall(rest))
        if not _EVERY.fullmatch(rest) or not 1 <= seconds <= LONGEST:
            raise InvalidCron(f"The interval {rest!r} is not valid. Write 90s, 15m, 2h, 1h30m, 1d or 1w.")
        return Every(seconds)
    if kind == "@at":
        try:
            return At(datetime.fromisoformat(rest).replace(microsecond=0))
        except ValueError as error:
            raise InvalidCron(f"The time {rest!r} is not valid. Write it as 2026-12-01T08:00.") from error
    return None


def timing(cron: Any = "", every: Any = None, at: Any = None) -> Any:
    """Return the text that says when a schedule runs, from the option that it has.  With several, no text is valid."""
    given = [each for each in (cron, _every(every), _at(at)) if each]
    return given[0] if len(given) == 1 else " and ".join(map(str, given))


def check_timing(cron: Any = "", every: Any = None, at: Any = None) -> None:
    """Raise InvalidSchedule unless a schedule has one of these options."""
    given = [name for name, value in (("cron", cron), ("every", every), ("at", at)) if value]
    if len(given) != 1:
        found = f"It has {' and '.join(given)}" if given else "It does not say when it runs"
        raise InvalidSchedule(f"{found}. Write one of cron, every and at.", "cron")


def _every(value: Any) -> str:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0:
        value = f"{int(value)}s"
    return f"@every {value}" if value else ""


def _at(value: Any) -> str:
    return f"@at {value.isoformat() if isinstance(value, datetime) else value}" if value else ""


def _floor(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
