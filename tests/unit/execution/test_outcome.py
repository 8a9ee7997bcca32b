"""What follows a failed attempt, and how an error becomes text."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.core.outcome import (
    DAY_MS,
    MAX_DELAY_MS,
    AnyFailure,
    Cancelled,
    Dead,
    Outcome,
    RetryIn,
    SnoozeFor,
    after_failure,
    clean,
    failed_attempt,
    formula_ms,
    milliseconds,
)
from django_jobs.exceptions import Discard, Fail, Retry, Snooze
from tests.unit.execution.workbench import Bench, bench

__all__ = ["bench"]


class Policy(AnyFailure):
    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)


def decide(
    error: BaseException,
    *,
    attempt: int = 1,
    most: int = 10,
    exhausted: str = "dead",
    once: bool = False,
    **policy: Any,
) -> Outcome:
    log = failed_attempt(error, number=attempt, at=1000)
    how = Policy(**policy)
    limits = {"backoff": how.backoff, "max_attempts": most, "on_exhausted": exhausted, "at_most_once": once}
    return after_failure(error, how, log, jitter=0.0, **limits)


@pytest.mark.accepts("G06", "G53", "R15")
def test_a_failed_attempt_is_followed_by_another_until_none_is_left() -> None:
    outcomes = [decide(ValueError("no"), attempt=n, most=3) for n in (1, 2, 3)]

    assert [type(outcome) for outcome in outcomes] == [RetryIn, RetryIn, Dead]


@pytest.mark.accepts("G71")
def test_an_exhausted_job_may_be_dropped_instead_of_dead() -> None:
    outcome = decide(ValueError("no"), attempt=3, most=3, exhausted="discard")

    assert isinstance(outcome, Cancelled)
    assert outcome.attempt.outcome == "discarded"


@pytest.mark.accepts("P16", "P06")
def test_errors_outside_retry_on_are_final() -> None:
    assert isinstance(decide(KeyError("x"), retry_on=(OSError,)), Dead)
    assert isinstance(decide(ConnectionError("x"), retry_on=(OSError,)), RetryIn)


def test_errors_in_discard_on_end_the_job_quietly() -> None:
    assert isinstance(decide(LookupError(), discard_on=(LookupError,)), Cancelled)


def test_a_job_may_decide_its_own_fate() -> None:
    retry = decide(Retry("busy", in_=7))
    snooze = decide(Snooze(in_=2.5), attempt=10, most=10)

    assert isinstance(retry, RetryIn)
    assert (retry.delay, retry.attempt.outcome) == (7000, "retried")
    assert snooze == SnoozeFor(2500)
    assert isinstance(decide(Discard("gone")), Cancelled)
    assert isinstance(decide(Fail("never")), Dead)


def test_a_retry_that_is_asked_for_counts_as_an_attempt() -> None:
    assert isinstance(decide(Retry(in_=7), attempt=3, most=3), Dead)


@pytest.mark.parametrize("error", [Snooze("later", in_=60), Snooze("soon", in_=-1), Retry("later", in_=60)])
def test_a_job_delivered_at_most_once_cannot_ask_for_another_start_and_is_told_why(error: Exception) -> None:
    dead, dropped = decide(error, once=True), decide(error, once=True, exhausted="discard")

    assert isinstance(dead, Dead)
    assert isinstance(dropped, Cancelled)
    assert dead.attempt.outcome == "failed"
    assert "delivery='at_most_once'" in dead.attempt.error
    assert dead.attempt.error.endswith(str(error))


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("too long"), SystemExit(1)])
def test_a_job_delivered_at_most_once_has_one_attempt_whatever_its_record_says(error: BaseException) -> None:
    assert isinstance(decide(error, once=True, most=10), Dead)


@pytest.mark.parametrize("wrong", ["soon", -1, float("nan"), float("inf"), True])
def test_a_delay_that_is_none_is_noted_and_the_backoff_used(wrong: Any) -> None:
    for error in (Retry("busy", in_=wrong), Snooze(in_=wrong)):
        outcome = decide(error, backoff=[3])
        assert isinstance(outcome, RetryIn)
        assert outcome.delay == 3000
        assert "delay" in outcome.attempt.error


@pytest.mark.accepts("G71", "G72")
def test_the_default_backoff_grows_and_is_at_most_a_day() -> None:
    assert [formula_ms(n, 0.0) for n in (1, 2, 3)] == [16_000, 31_000, 96_000]
    assert [formula_ms(n, 0.5) - formula_ms(n, 0.0) for n in (1, 2, 3)] == [10_000, 15_000, 20_000]
    assert formula_ms(1_000_000, 0.5) == DAY_MS


@pytest.mark.accepts("G72")
def test_jobs_that_fail_together_come_back_one_after_the_other(bench: Bench) -> None:
    def fails() -> None:
        raise ValueError

    bench.define(fails)
    times = {bench.run(None, name="bench.fails").at - bench.clock.now for _ in range(10)}
    assert len(times) > 5
    assert all(16_000 <= each <= 36_000 for each in times)


def test_a_list_of_pauses_is_used_in_order_and_its_last_one_from_then_on() -> None:
    delays = [decide(ValueError(), attempt=n, backoff=(1, 2.5)) for n in (1, 2, 3, 4)]

    assert [outcome.delay for outcome in delays if isinstance(outcome, RetryIn)] == [1000, 2500, 2500, 2500]


@pytest.mark.accepts("G71")
def test_a_callable_backoff_gets_the_attempt_and_the_error() -> None:
    outcome = decide(ValueError("12"), attempt=2, backoff=lambda attempt, error: attempt * int(str(error)))

    assert isinstance(outcome, RetryIn)
    assert outcome.delay == 24_000


@pytest.mark.parametrize("backoff", [lambda a, e: "x", lambda a, e: 1 / 0, lambda a: 1, lambda a, e: None])
def test_a_broken_backoff_does_not_cost_the_job_its_next_attempt(backoff: Any) -> None:
    outcome = decide(ValueError("no"), backoff=backoff)

    assert isinstance(outcome, RetryIn)
    assert outcome.delay == 16_000
    assert "backoff failed" in outcome.attempt.error


@given(
    st.one_of(
        st.floats(0.001, allow_infinity=False),
        st.just(10**400),
        st.timedeltas(timedelta(milliseconds=1), timedelta(days=4000)),
    )
)
def test_no_duration_becomes_nothing_or_too_much(delay: Any) -> None:
    assert 1 <= milliseconds(delay) <= MAX_DELAY_MS


# -- errors as text --------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        ValueError("x" * 50_000_000),
        ValueError("\ud800 lone, \x00 nul, \x1b[31mred\x1b[0m"),
        UnicodeDecodeError("utf-8", b"\xff" * 100, 0, 1, "bad"),
        ValueError("𝔘" * 10_000),
        OSError(5, "\udcff"),
    ],
    ids=["unprintable", "50 MB", "controls", "decode", "wide", "surrogate"],
)
def test_every_error_can_be_stored(error: BaseException) -> None:
    log = failed_attempt(raised(error), number=1, at=0)

    stored = "".join((log.error_type, log.error, log.traceback)).encode()
    assert len(stored) <= 16 * 1024
    assert not any(byte < 32 and byte not in b"\t\n" for byte in stored)


@given(st.text(st.characters(exclude_categories=[])), st.integers(4, 50))
def test_clean_text_is_short_valid_and_without_controls(text: str, limit: int) -> None:
    for keep_end in (False, True):
        data = clean(text, limit, keep_end=keep_end).encode()
        assert len(data) <= limit
        assert b"\0" not in data
        assert b"\x1b" not in data


def test_endless_recursion_has_a_short_traceback() -> None:
    def dig() -> None:
        dig()

    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError) as caught:
        dig()
    assert len(failed_attempt(caught.value, number=1, at=0).traceback) <= 12 * 1024
    assert sys.getrecursionlimit() == limit
