"""Intervals and single times: which moments they have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_jobs.exceptions import InvalidCron, InvalidSchedule
from django_jobs.schedules.cron import latest_runs, next_run, parse, runs_between
from django_jobs.schedules.interval import NEVER, check_timing, timing

PARIS = ZoneInfo("Europe/Paris")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("1d", 86_400), ("1w", 604_800), ("1s", 1)],
)
def test_an_interval_runs_at_its_multiples(text: str, seconds: int) -> None:
    runs = list(runs_between(f"@every {text}", NOON, NOON + timedelta(seconds=3 * seconds), PARIS))
    assert [int(run.timestamp()) % seconds for run in runs] == [0, 0, 0]
    assert latest_runs(f"@every {text}", NOON, NOON + timedelta(seconds=3 * seconds), PARIS, 2) == runs[-2:]


def test_an_interval_does_not_follow_the_clocks() -> None:
    change = datetime(2026, 10, 25, 0, tzinfo=UTC)
    runs = list(runs_between("@every 2h", change, change + timedelta(hours=6), PARIS))
    assert [run.hour for run in runs] == [2, 4, 6]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T08:00", datetime(2026, 12, 1, 7, tzinfo=UTC)),
        ("2026-12-01T08:00+00:00", datetime(2026, 12, 1, 8, tzinfo=UTC)),
        ("2026-12-01T08:00:30+01:00", datetime(2026, 12, 1, 7, 0, 30, tzinfo=UTC)),
    ],
)
def test_a_single_time_comes_once(text: str, moment: datetime) -> None:
    assert next_run(f"@at {text}", NOON, PARIS) == moment
    assert next_run(f"@at {text}", moment, PARIS) == NEVER
    assert latest_runs(f"@at {text}", NOON, moment, PARIS, 5) == [moment]
    assert latest_runs(f"@at {text}", moment, moment + timedelta(days=9), PARIS, 5) == []
    assert latest_runs(f"@at {text}", NOON, moment - timedelta(seconds=1), PARIS, 5) == []


@pytest.mark.parametrize("text", ["@every", "@every 0s", "@every 90", "@every 1.5s", "@every 4000d", "@every -1s"])
def test_a_wrong_interval_is_refused(text: str) -> None:
    with pytest.raises(InvalidCron, match="Write 90s, 15m, 2h"):
        parse(text)


@pytest.mark.parametrize("text", ["@at", "@at noon", "@at 2026-13-01T08:00"])
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidCron, match="Write it as 2026-12-01T08:00"):
        parse(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cron": "0 3 * * *"}, "0 3 * * *"),
        ({"every": "90s"}, "@every 90s"),
        ({"every": 90}, "@every 90s"),
        ({"every": timedelta(minutes=2)}, "@every 120s"),
        ({"at": "2026-12-01T08:00"}, "@at 2026-12-01T08:00"),
        ({"at": datetime(2026, 12, 1, 8, tzinfo=UTC)}, "@at 2026-12-01T08:00:00+00:00"),
    ],
)
def test_each_option_gives_one_text(options: Any, text: str) -> None:
    check_timing(**options)
    assert timing(**options) == text
    parse(text)


@pytest.mark.parametrize("options", [{}, {"cron": "0 3 * * *", "every": "90s"}, {"every": 90, "at": "2026-12-01"}])
def test_a_schedule_has_one_of_them(options: Any) -> None:
    with pytest.raises(InvalidSchedule, match="Write one of cron, every and at"):
        check_timing(**options)
    with pytest.raises(InvalidCron):
        parse(timing(**options))
