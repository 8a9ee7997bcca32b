"""Cron against the dumbest reader there is: one that looks at the clock on the wall every minute."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from django_jobs.schedules.cron import latest_runs, runs_between
from tests.support.dose import dose

ZONES = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
MINUTE = timedelta(minutes=1)
EXAMPLES = dose(25, quick=6, long=2000)


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]


def field(low: int, high: int) -> st.SearchStrategy[Field]:
    every = frozenset(range(low, high + 1))
    number = st.integers(low, high)
    return st.one_of(
        st.just(Field("*", every)),
        st.sets(number, min_size=1, max_size=4).map(lambda s: Field(",".join(map(str, sorted(s))), frozenset(s))),
        st.integers(1, high - low).map(lambda n: Field(f"*/{n}", frozenset(range(low, high + 1, n)))),
        st.tuples(number, number).map(
            lambda p: Field(f"{min(p)}-{max(p)}", frozenset(range(min(p), max(p) + 1)))
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Expression:
    minute: Field
    hour: Field
    weekday: Field

    @property
    def text(self) -> str:
        return f"{self.minute.text} {self.hour.text} * * {self.weekday.text}"

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.isoweekday() % 7 in self.weekday.values
        )


expressions = st.builds(Expression, field(0, 59), field(0, 23), field(0, 6))


def scan(expression: Expression, start: datetime, end: datetime, zone: ZoneInfo) -> list[datetime]:
    """The promise, word for word, minute by minute."""
    hourly = expression.hour.values == frozenset(range(24))
    runs = []
    newest = start.astimezone(zone).replace(tzinfo=None)
    moment = start
    while (moment := moment + MINUTE) <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if hourly:
            due = expression.matches(wall)
        else:
            # All wall-clock minutes that came into being: one, none (seen before), or a whole gap.
            new = range(1, (wall - newest) // MINUTE + 1)
            due = any(expression.matches(newest + MINUTE * n) for n in new)
        newest = max(newest, wall)
        if due:
            runs.append(moment)
    return runs


def changes(zone: ZoneInfo) -> list[datetime]:
    """The days on which the zone's offset changes, 1970 to 2100."""
    day, last = datetime(1970, 1, 2, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    found = []
    while day < last:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(day)
        day = following
    return found


@pytest.mark.accepts("G10")
@pytest.mark.parametrize("name", ZONES)
def test_every_zone_runs_as_the_scanner_does_round_its_clock_changes(name):
    zone = ZoneInfo(name)
    days = changes(zone) or [datetime(2026, 3, 29, tzinfo=UTC)]

    # Shrinking would take minutes and teach nothing: the message names the expression and the day.
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    @given(expressions, st.sampled_from(days), st.integers(0, 24 * 60))
    def agrees(expression, day, minutes):
        start = day - timedelta(minutes=minutes)
        end = day + timedelta(days=1, hours=6)
        expected = scan(expression, start, end, zone)
        runs = list(runs_between(expression.text, start, end, zone))
        assert runs == expected, f"{expression.text} in {name} from {start}"
        assert latest_runs(expression.text, start, end, zone, 3) == expected[-3:]

    agrees()
