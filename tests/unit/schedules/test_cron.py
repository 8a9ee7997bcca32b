"""What a cron expression means, and which are refused."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from django_jobs.exceptions import InvalidCron
from django_jobs.schedules.cron import jitter_ms, latest_runs, next_run, parse, runs_between

NEW_YORK = ZoneInfo("America/New_York")
PARIS = ZoneInfo("Europe/Paris")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")


def local_runs(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[str]:
    """The runs of a stretch of time as the clock on the wall shows them, with the offset."""
    runs = runs_between(text, start.replace(tzinfo=zone), end.replace(tzinfo=zone), zone)
    return [f"{moment.astimezone(zone):%d %H:%M:%S%z}" for moment in runs]


def test_five_fields_are_minute_hour_day_month_weekday():
    after = datetime(2026, 11, 20, 10, 2, 30, tzinfo=UTC)
    assert next_run("*/5 * * * *", after, UTC) == datetime(2026, 11, 20, 10, 5, tzinfo=UTC)
    assert next_run("30 4 * * mon", after, UTC) == datetime(2026, 11, 23, 4, 30, tzinfo=UTC)


@pytest.mark.accepts("G35")
def test_six_fields_have_the_seconds_first():
    after = datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)
    assert next_run("0 0 * * * *", after, UTC) == datetime(2026, 11, 20, 11, tzinfo=UTC)
    assert next_run("*/10 * * * * *", after, UTC) == datetime(2026, 11, 20, 10, 0, 40, tzinfo=UTC)
    assert next_run("15 30 2 * * 1-5", after, UTC) == datetime(2026, 11, 23, 2, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("alias", "run"),
    [
        ("@hourly", datetime(2026, 11, 20, 11, tzinfo=UTC)),
        ("@daily", datetime(2026, 11, 21, tzinfo=UTC)),
        ("@midnight", datetime(2026, 11, 21, tzinfo=UTC)),
        ("@weekly", datetime(2026, 11, 22, tzinfo=UTC)),
        ("@monthly", datetime(2026, 12, 1, tzinfo=UTC)),
        ("@yearly", datetime(2027, 1, 1, tzinfo=UTC)),
        ("@Annually", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_aliases_are_known(alias, run):
    assert next_run(alias, datetime(2026, 11, 20, 10, 30, tzinfo=UTC), UTC) == run


def test_a_scheduled_time_is_always_later_than_the_moment_asked_about():
    at = datetime(2026, 11, 20, 10, 5, tzinfo=UTC)
    assert next_run("*/5 * * * *", at, UTC) == at + timedelta(minutes=5)
    assert next_run("*/5 * * * *", at - timedelta(microseconds=1), UTC) == at


def test_a_day_of_month_and_a_weekday_mean_either_as_in_classic_cron():
    runs = runs_between("0 0 13 * fri", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC), UTC)
    assert [moment.day for moment in runs] == [6, 13, 20, 27]


@pytest.mark.parametrize("text", ["0 0 */2 * mon", "0 0 1-31/2 * mon"])
def test_a_day_field_that_begins_with_a_star_is_none_of_its_own_as_in_vixies_cron(text):
    runs = list(runs_between(text, datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC), UTC))
    mondays_of_odd_date = [datetime(2026, 11, day, tzinfo=UTC) for day in (9, 23)]
    assert (runs == mondays_of_odd_date) is text.startswith("0 0 *")
    assert set(mondays_of_odd_date) <= set(runs)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("59/15 * * * *", [59]),
        ("5/15 * * * *", [5, 20, 35, 50]),
        ("5/20,7 * * * *", [5, 7, 25, 45]),
        ("5-5 * * * *", [5]),
    ],
)
def test_a_step_from_a_number_means_the_same_with_every_croniter(text, minutes):
    start = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
    assert [m.minute for m in runs_between(text, start, start + timedelta(hours=1), UTC)] == minutes


def test_a_step_from_saturday_is_saturday():
    assert parse("0 0 * * 6/1").fields == "0 0 * * 6"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0 0 31 2 *", "no time ever matches"),
        ("0 0 30 feb *", "no time ever matches"),
        ("60 * * * *", "is not valid"),
        ("0 0 0 * *", "is not valid"),
        ("*/0 * * * *", "is not valid"),
        ("* * * * 1#7", "is not valid"),
        ("* * * *", "has 4 fields"),
        ("0 0 1 1 * 2027 *", "has 7 fields"),
        ("", "has 0 fields"),
        (None, "has 0 fields"),
        (5, "has 0 fields"),
        ("@reboot", "@hourly, @daily"),
        ("H * * * *", "use jitter"),
        ("H(0-29)/10 * * * *", "which no field may contain"),
        ("R * * * *", "use jitter"),
        ("0 r * * *", "use jitter"),
        ("0 0 15W * *", "neither a day nor a month"),
        ("0 0 * * someday", "neither a day nor a month. Write jan to dec, mon to sun, or numbers."),
        ("٥ * * * *", "which no field may contain"),
        ("61/5 * * * *", "Write a range"),
        ("0 0 * * sat/1", "Write a range"),
        ("TZ=UTC * * * * *", "which no field may contain"),
    ],
)
def test_an_impossible_expression_is_refused_with_the_value_and_the_remedy(text, remedy):
    with pytest.raises(InvalidCron) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 L * *", "0 0 * * fri#1", "0 0 * * L5", "0 0 ? * mon-fri"])
def test_rare_but_possible_expressions_are_accepted(text):
    assert next_run(text, datetime(2026, 1, 1, tzinfo=UTC), UTC) > datetime(2026, 1, 1, tzinfo=UTC)


def test_a_naive_moment_is_refused():
    with pytest.raises(ValueError, match="aware"):
        next_run("* * * * *", datetime(2026, 1, 1), UTC)


class TestSpring:
    """8 March 2026 in New York: 02:00 to 03:00 does not exist."""

    def test_a_time_that_does_not_exist_runs_once_at_the_first_valid_moment(self):
        runs = local_runs("30 2 * * *", NEW_YORK, datetime(2026, 3, 7), datetime(2026, 3, 10))
        assert runs == ["07 02:30:00-0500", "08 03:00:00-0400", "09 02:30:00-0400"]

    def test_several_times_in_the_gap_run_once(self):
        runs = local_runs("0,20,40 2,3 * * *", NEW_YORK, datetime(2026, 3, 8), datetime(2026, 3, 9))
        assert runs == ["08 03:00:00-0400", "08 03:20:00-0400", "08 03:40:00-0400"]

    def test_an_hourly_schedule_gets_no_extra_run(self):
        runs = local_runs("30 * * * *", NEW_YORK, datetime(2026, 3, 8, 1), datetime(2026, 3, 8, 5))
        assert runs == ["08 01:30:00-0500", "08 03:30:00-0400", "08 04:30:00-0400"]

    def test_a_missing_midnight_runs_at_one(self):
        zone = ZoneInfo("America/Sao_Paulo")
        runs = local_runs("@daily", zone, datetime(2018, 11, 3, 12), datetime(2018, 11, 5, 12))
        assert runs == ["04 01:00:00-0200", "05 00:00:00-0200"]

    def test_a_gap_of_half_an_hour(self):
        runs = local_runs("15 2 * * *", LORD_HOWE, datetime(2026, 10, 3, 12), datetime(2026, 10, 5, 12))
        assert runs == ["04 02:30:00+1100", "05 02:15:00+1100"]

    def test_a_day_that_does_not_exist_runs_when_it_would_have_ended(self):
        runs = local_runs("0 12 30 12 *", ZoneInfo("Pacific/Apia"), datetime(2011, 12, 1), datetime(2012, 1, 10))
        assert runs == ["31 00:00:00+1400"]


class TestAutumn:
    """1 November 2026 in New York: 01:00 to 02:00 exists twice."""

    def test_a_time_that_exists_twice_runs_once(self):
        runs = local_runs("30 1 * * *", NEW_YORK, datetime(2026, 10, 31), datetime(2026, 11, 3))
        assert runs == ["31 01:30:00-0400", "01 01:30:00-0400", "02 01:30:00-0500"]

    def test_asked_between_the_two_it_does_not_run_again(self):
        between = datetime(2026, 11, 1, 5, 45, tzinfo=UTC)
        assert next_run("30 1 * * *", between, NEW_YORK) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)

    def test_an_hourly_schedule_keeps_every_real_hour(self):
        runs = local_runs("0 * * * *", NEW_YORK, datetime(2026, 11, 1), datetime(2026, 11, 1, 3))
        assert runs == ["01 01:00:00-0400", "01 01:00:00-0500", "01 02:00:00-0500", "01 03:00:00-0500"]

    def test_a_minutely_schedule_keeps_every_real_minute(self):
        start, end = datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)
        assert len(list(runs_between("* * * * *", start, end, PARIS))) == 180
        assert len(list(runs_between("*/10 * * * * *", start, end, PARIS))) == 180 * 6

    def test_an_overlap_of_half_an_hour(self):
        start, end = datetime(2026, 4, 5, 1, 20), datetime(2026, 4, 5, 2, 20)
        assert local_runs("40 1 * * *", LORD_HOWE, start, end) == ["05 01:40:00+1100"]
        assert local_runs("40 * * * *", LORD_HOWE, start, end) == ["05 01:40:00+1100", "05 01:40:00+1030"]

    def test_an_hourly_run_at_the_very_moment_of_the_change_is_kept(self):
        runs = local_runs("30 * * * *", LORD_HOWE, datetime(2026, 4, 5, 1, 35), datetime(2026, 4, 5, 3))
        assert runs == ["05 01:30:00+1030", "05 02:30:00+1030"]


class TestLatest:
    def test_the_last_runs_come_oldest_first(self):
        start, end = datetime(2026, 3, 10, tzinfo=UTC), datetime(2026, 4, 10, 0, 0, 30, tzinfo=UTC)
        every = list(runs_between("7 */3 * * *", start, end, PARIS))
        assert latest_runs("7 */3 * * *", start, end, PARIS, 100) == every[-100:]
        assert latest_runs("7 */3 * * *", start, end, PARIS, 1) == every[-1:]
        assert latest_runs("7 */3 * * *", start, end, PARIS, 5000) == every

    def test_the_start_is_not_a_run_and_the_end_may_be(self):
        start, end = datetime(2026, 1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert latest_runs("@hourly", start, end, UTC, 10) == [end]
        assert latest_runs("@hourly", start, end - timedelta(seconds=1), UTC, 10) == []
        assert latest_runs("@hourly", end, end, UTC, 10) == []

    def test_a_year_of_seconds_is_not_walked(self, monkeypatch):
        calls = []
        monkeypatch.setattr("django_jobs.schedules.cron.next_run", lambda *a: calls.append(a) or next_run(*a))
        end = datetime(2026, 6, 1, tzinfo=UTC)
        (last,) = latest_runs("* * * * * *", end - timedelta(days=365), end, PARIS, 1)
        assert last == end
        assert len(calls) < 50


class TestJitter:
    def test_it_is_the_same_for_everybody_and_differs_between_schedules_and_runs(self):
        first = jitter_ms("settings:report", 1_000_000, 30)
        assert first == jitter_ms("settings:report", 1_000_000, 30)
        values = {jitter_ms(f"settings:{n}", 1_000_000, 30) for n in range(50)}
        values |= {jitter_ms("settings:report", n, 30) for n in range(50)}
        assert len(values) > 90
        assert all(0 <= value <= 30_000 for value in values)

    def test_without_jitter_there_is_none(self):
        assert jitter_ms("settings:report", 1_000_000, 0) == 0


@pytest.mark.parametrize(
    "text", ["30 2 * * *", "*/7 * 1,15 * 1", "0 0 l * *", "0 9 * * 1#2", "5 5 29 2 *", "*/20 * * * * *"]
)
def test_questions_about_one_expression_do_not_change_each_others_answers(text: str) -> None:
    """An expression is parsed once, and asked from many moments, in any order."""
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n * 37 % 400, seconds=n * 4321) for n in range(60)]
    first = {moment: next_run(text, moment, UTC) for moment in moments}
    assert {moment: next_run(text, moment, UTC) for moment in reversed(moments)} == first
    for moment, found in first.items():
        fresh = croniter(parse(text).fields, moment.replace(tzinfo=None), second_at_beginning=True)
        assert found == fresh.get_next(datetime).replace(tzinfo=UTC)
