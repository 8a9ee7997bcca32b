"""Times and delays at the user's edge become milliseconds: none too small, none too large, none without a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.core.definition import JobDefinition
from django_jobs.core.options.checks import LONGEST
from django_jobs.enqueueing.call_options import check_id, delay_ms, moment
from django_jobs.enqueueing.request import new_id
from django_jobs.exceptions import InvalidArguments

DURATIONS = (
    st.floats(0.001, LONGEST)
    | st.integers(1, int(LONGEST))
    | st.timedeltas(timedelta(milliseconds=1), timedelta(seconds=LONGEST))
)


def task() -> None: ...


@given(DURATIONS)
def test_any_duration_from_a_millisecond_to_ten_years_is_kept(duration: float | timedelta) -> None:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    definition = JobDefinition(task, expires_in=duration, keep_result=duration)
    assert definition.expires_in == seconds
    kept = definition.stored_controls.keep_result
    assert kept is not None
    assert kept >= 1
    assert abs(kept - seconds * 1000) <= 0.5
    assert delay_ms(duration) == kept


@given(st.datetimes(datetime(1970, 1, 2), datetime(2500, 1, 1)), st.integers(-23, 23))
def test_a_moment_is_the_same_in_every_zone(naive: datetime, hours: int) -> None:
    when = naive.replace(tzinfo=UTC)
    assert moment(when, "when") == moment(when.astimezone(timezone(timedelta(hours=hours))), "when")
    assert abs(moment(when, "when") - when.timestamp() * 1000) <= 0.5


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), None, 5, "2030-01-01", datetime(1960, 1, 1, tzinfo=UTC)])
def test_what_is_no_moment_is_named(value: object) -> None:
    with pytest.raises(InvalidArguments, match="when="):
        moment(value, "when")


@pytest.mark.parametrize("value", [-0.001, True, None, "5", float("nan"), float("inf"), 1e12, timedelta(days=-1)])
def test_what_is_no_delay_is_named(value: object) -> None:
    with pytest.raises(InvalidArguments, match="delay="):
        delay_ms(value)


def test_ids_that_we_make_are_ids_that_we_take() -> None:
    ids = {new_id(1_800_000_000_000) for _ in range(1000)}
    assert len(ids) == 1000
    assert all(check_id(id) == id and id.startswith(f"{1_800_000_000_000:012x}") for id in ids)
