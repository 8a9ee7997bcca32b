"""When a cron expression fires, in a time zone, through both clock changes.  Pure: no clock, no Django.

croniter matches wall-clock times and nothing else: it is only ever asked about naive times, where there is no clock
change, and where its versions agree.  What a wall-clock time means in a zone is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from croniter import croniter

from django_jobs.exceptions import InvalidCron
from django_jobs.schedules.cron_text import normalise

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
#: An expression that cannot match after this moment matches never: there is no field for years.
LONG_AGO = datetime(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid expression.  `fields` is what croniter is given, seconds first where there are six."""

    text: str
    fields: str
    #: it fires in every hour of the day, so it follows real time through a clock change, not the wall clock.
    hourly: bool


@lru_cache(maxsize=1024)
def parse(text: str) -> Cron:
    """Read five fields (classic), six (seconds first), or an alias such as @daily.

    Raises InvalidCron, naming the value and the remedy, also for a date that never comes."""
    fields = normalise(text)
    try:
        hours = croniter.expand(f"0 {fields.split()[-4]} * * *")[0][1]
        _matcher(fields, LONG_AGO).get_next(datetime)
    except (ValueError, KeyError, IndexError) as error:
        # croniter's errors are ValueErrors; on some malformed fields it fails with the others.
        raise InvalidCron(
            f"The cron expression {text!r} cannot be read, or never comes true ({error}). Write minute, hour, day of "
            "month, month and day of week, such as '*/5 * * * *', with seconds before them if needed."
        ) from error
    return Cron(text, fields, hourly=hours == ["*"] or len(set(hours)) == 24)


def next_fire(text: str, after: datetime, zone: tzinfo) -> datetime:
    """The first fire time later than `after` (aware), in UTC.

    A schedule of every hour fires at each real moment whose wall-clock time matches.  Any other names wall-clock
    times: one that does not exist fires at the first moment that does, one that exists twice fires the first time.
    Raises InvalidCron, and ValueError for a naive `after`."""
    if after.tzinfo is None:
        raise ValueError(f"{after!r} has no time zone. Pass an aware datetime.")
    cron = parse(text)
    return _next_real(cron, after.astimezone(UTC), zone) if cron.hourly else _next_wall(cron, after, zone)


def fires_between(text: str, after: datetime, until: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Every fire time later than `after` and not later than `until`, in UTC, strictly increasing."""
    moment = next_fire(text, after, zone)
    while moment <= until:
        yield moment
        following = next_fire(text, moment, zone)
        if following <= moment:
            raise InvalidCron(f"The cron expression {text!r} does not advance after {moment}. Write it another way.")
        moment = following


def latest_fires(text: str, after: datetime, until: datetime, zone: tzinfo, limit: int) -> list[datetime]:
    """The last `limit` fire times later than `after` and not later than `until`, oldest first.

    Found by halving, so that a month of a schedule of every second costs no more than an hour of it."""
    found: list[datetime] = []
    end = until
    while len(found) < limit and (moment := _latest(text, after, end, zone)) is not None:
        found.append(moment)
        end = moment - SECOND
    return found[::-1]


def jitter_ms(schedule: str, fire: int, jitter: float) -> int:
    """How many ms the fire at `fire` ms is put off: 0 … `jitter` seconds, the same in every process."""
    if jitter <= 0:
        return 0
    digest = hashlib.sha256(f"{schedule}:{fire}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (int(jitter * 1000) + 1)


def _matcher(fields: str, start: datetime) -> croniter:
    return croniter(fields, start, second_at_beginning=True)


def _next_match(cron: Cron, wall: datetime) -> datetime:
    """The first wall-clock time (naive) later than `wall` that matches."""
    match: datetime = _matcher(cron.fields, wall.replace(tzinfo=None, microsecond=0, fold=0)).get_next(datetime)
    return match


def _next_wall(cron: Cron, after: datetime, zone: tzinfo) -> datetime:
    wall = after.astimezone(zone)
    while True:
        wall = _next_match(cron, wall)
        # Not later than `after`: the second pass through an hour that exists twice.
        if (moment := _first_moment(wall, zone)) > after:
            return moment


def _first_moment(wall: datetime, zone: tzinfo) -> datetime:
    """The moment of a naive wall-clock time in UTC: the first of two, or the end of the gap it falls into."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    # In a gap: fold=1 reads the time with the offset after the change, which lands before it.
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
        # The offset held only up to the change; a fire at the very moment of the change must still be found.
        after = change - SECOND
        offset = change.astimezone(zone).utcoffset() or timedelta()
        moment = (_next_match(cron, after + offset) - offset).replace(tzinfo=UTC)
        if _first_change(change, moment, zone) is None:
            return moment
        after = change


def _first_change(after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    """The first moment later than `after`, not later than `until`, at which the offset has changed."""
    offset = after.astimezone(zone).utcoffset()
    while after < until:
        step = min(after + DAY, until)
        if step.astimezone(zone).utcoffset() != offset:
            return _change(after, step, zone)
        after = step
    return None


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first whole second in (before, after] with another offset than `before` has."""
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
    found = next_fire(text, after, zone)
    if found > until:
        return None
    if next_fire(text, found, zone) > until:
        return found  # usual: workers look often
    low, high = int(found.timestamp()), int(until.timestamp())
    # The last fire is mostly near the end: go back from there in growing steps before halving.
    back = 60
    while high - back > low:
        if next_fire(text, datetime.fromtimestamp(high - back, UTC), zone) <= until:
            low = high - back
            break
        back *= 4
    while low < high:
        middle = (low + high) // 2
        moment = next_fire(text, datetime.fromtimestamp(middle, UTC), zone)
        if moment <= until:
            found, low = moment, int(moment.timestamp())
        else:
            high = middle
    return found
