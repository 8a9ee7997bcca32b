"""The times of a cron expression in a time zone, through both clock changes.  Pure: no clock, no Django.

croniter matches wall-clock times only.  It is always given naive times, which have no clock change and on which its
versions agree.  This module decides what a wall-clock time means in a zone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

from django_jobs.exceptions import InvalidCron
from django_jobs.schedules import interval
from django_jobs.schedules.cron_text import normalise

if TYPE_CHECKING:
    from croniter import croniter

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
#: An expression with no match after this moment never matches: there is no field for years.
LONG_AGO = datetime(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid expression.  `fields` is what croniter gets, with the seconds first if there are six."""

    text: str
    fields: str
    #: True if it runs in every hour of the day: it then follows real time through a clock change, not the wall clock.
    hourly: bool


@lru_cache(maxsize=1024)
def parse(text: str) -> Cron:
    """Parse five fields (classic), six (seconds first), or an alias such as @daily.

    Raises InvalidCron with the value and the remedy, also for a date that never comes."""
    if interval.read(text) is not None:
        return Cron(text, "", hourly=True)
    fields = normalise(text)
    # Here, because it takes a tenth of what this app costs a web process, and few of these read a schedule.
    from croniter import croniter

    try:
        hours = croniter.expand(f"0 {fields.split()[-4]} * * *")[0][1]
        _matcher(fields, LONG_AGO).get_next(datetime)
    except (ValueError, KeyError, IndexError) as error:
        # croniter's errors are ValueErrors; for some malformed fields it raises the others.
        raise InvalidCron(
            f"The cron expression {text!r} is not valid, or no time ever matches it ({error}). Write minute, hour, day "
            "of month, month and day of week, such as '*/5 * * * *', with seconds before them if needed."
        ) from error
    return Cron(text, fields, hourly=hours == ["*"] or len(set(hours)) == 24)


def next_run(text: str, after: datetime, zone: tzinfo) -> datetime:
    """Return the first scheduled time later than `after` (aware), in UTC; interval.NEVER if there is none.

    A schedule of every hour runs at each real moment whose wall-clock time matches.  For any other schedule, a
    wall-clock time that does not exist counts at the first moment that does, and one that exists twice counts the
    first time.  Raises InvalidCron, and ValueError for a naive `after`."""
    if after.tzinfo is None:
        raise ValueError(f"{after!r} has no time zone. Pass an aware datetime.")
    if (own := interval.read(text)) is not None:
        return own.next(after, zone)
    cron = parse(text)
    return _next_real(cron, after.astimezone(UTC), zone) if cron.hourly else _next_wall(cron, after, zone)


def runs_between(text: str, after: datetime, until: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Yield every scheduled time later than `after` and not later than `until`, in UTC, strictly increasing."""
    moment = next_run(text, after, zone)
    while moment <= until:
        yield moment
        following = next_run(text, moment, zone)
        if following <= moment:
            raise InvalidCron(f"The cron expression {text!r} does not advance after {moment}. Write it another way.")
        moment = following


def latest_runs(text: str, after: datetime, until: datetime, zone: tzinfo, limit: int) -> list[datetime]:
    """Return the last `limit` scheduled times later than `after` and not later than `until`, oldest first.

    Uses bisection: for a schedule of every second, a month costs no more than an hour."""
    if (own := interval.read(text)) is not None:
        return own.latest(after, until, zone, limit)
    found: list[datetime] = []
    end = until
    while len(found) < limit and (moment := _latest(text, after, end, zone)) is not None:
        found.append(moment)
        end = moment - SECOND
    return found[::-1]


def jitter_ms(schedule: str, scheduled: int, jitter: float) -> int:
    """Return by how many ms the run of `scheduled` (ms) is delayed: 0 … `jitter` seconds, the same in every process."""
    if jitter <= 0:
        return 0
    digest = hashlib.sha256(f"{schedule}:{scheduled}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (int(jitter * 1000) + 1)


@lru_cache(maxsize=1024)
def _parsed(fields: str) -> croniter:
    from croniter import croniter

    # As in Vixie's cron, a day field that begins with a star, as `*/2`, is no day of its own: both fields must match.
    *_, day, _, weekday = fields.split()
    either = not (day.startswith("*") or weekday.startswith("*"))
    return croniter(fields, LONG_AGO, second_at_beginning=True, day_or=either)


def _matcher(fields: str, start: datetime) -> croniter:
    # To parse the expression takes longer than to find its next time, which changes nothing that the copies share.
    matcher = copy(_parsed(fields))
    matcher.set_current(start, force=True)
    return matcher


def _next_match(cron: Cron, wall: datetime) -> datetime:
    """Return the first wall-clock time (naive) later than `wall` that matches."""
    match: datetime = _matcher(cron.fields, wall.replace(tzinfo=None, microsecond=0, fold=0)).get_next(datetime)
    return match


def _next_wall(cron: Cron, after: datetime, zone: tzinfo) -> datetime:
    wall = after.astimezone(zone)
    while True:
        wall = _next_match(cron, wall)
        # Not later than `after`: this is the second pass through an hour that exists twice.
        if (moment := _first_moment(wall, zone)) > after:
            return moment


def _first_moment(wall: datetime, zone: tzinfo) -> datetime:
    """Return the moment of a naive wall-clock time in UTC: the first of two, or the end of the gap it falls into."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    # In a gap: fold=1 uses the offset after the change, which gives a moment before the change.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _change(before, moment, zone)


def _next_real(cron: Cron, after: datetime, zone: tzinfo) -> datetime:
    while True:
        local = after.astimezone(zone)
        offset = local.utcoffset() or timedelta()
        moment = (_next_match(cron, local) - offset).replace(tzinfo=UTC)
        change = _first_change(after, moment, zone)
        if change is None:
            return moment
        # The offset was valid only until the change; a time at the very moment of the change must still be found.
        after = change - SECOND
        offset = change.astimezone(zone).utcoffset() or timedelta()
        moment = (_next_match(cron, after + offset) - offset).replace(tzinfo=UTC)
        if _first_change(change, moment, zone) is None:
            return moment
        after = change


def _first_change(after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    """Return the first moment later than `after`, not later than `until`, from which another offset holds."""
    offset = after.astimezone(zone).utcoffset()
    while after < until:
        step = min(after + DAY, until)
        if step.astimezone(zone).utcoffset() != offset:
            return _change(after, step, zone)
        after = step
    return None


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the first whole second in (before, after] whose offset differs from that of `before`."""
    offset = before.astimezone(zone).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def _latest(text: str, after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    found = next_run(text, after, zone)
    if found > until:
        return None
    if next_run(text, found, zone) > until:
        return found  # the usual case: workers check often
    low, high = int(found.timestamp()), int(until.timestamp())
    # The last time is usually near the end: go back from there in growing steps before the bisection.
    back = 60
    while high - back > low:
        if next_run(text, datetime.fromtimestamp(high - back, UTC), zone) <= until:
            low = high - back
            break
        back *= 4
    while low < high:
        middle = (low + high) // 2
        moment = next_run(text, datetime.fromtimestamp(middle, UTC), zone)
        if moment <= until:
            found, low = moment, int(moment.timestamp())
        else:
            high = middle
    return found
