"""The decoder of what is read from the store."""

from __future__ import annotations

import pytest

from django_jobs.core.values import Attempt
from django_jobs.serialization.checked import (
    DEEPEST,
    LARGEST,
    Unreadable,
    loaded,
    loads,
    moment,
    noticing,
    read_count,
    read_number,
    typed,
    whole,
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[Infinity]",
        "1e999",
        "9" * 5_000,
        "[" * 5_000,
        "[" * 300 + "]" * 300,
        b"\xff",
        '{"a": -Infinity}',
    ],
)
def test_what_no_reader_can_use_is_unreadable(text: str | bytes) -> None:
    with pytest.raises(Unreadable):
        loads(text)
    assert loaded(text, "raw") == "raw"


def test_json_as_deep_as_arguments_may_be_is_read() -> None:
    assert loads("[" * (DEEPEST - 1) + "7" + "]" * (DEEPEST - 1))


def test_half_of_a_pair_becomes_a_question_mark_and_a_pair_stays() -> None:
    assert loads('["a\\ud800", "\\ud83d\\ude00", {"\\udfff": 1}]') == ["a?", "\U0001f600", {"?": 1}]


def test_numbers_fit_into_64_bits_and_what_is_none_is_zero() -> None:
    assert [read_number(text) for text in (b"7", b"-7", "1e300", b"-1e300", b"nan", b"inf", "x")] == [
        *(7, -7, LARGEST, -LARGEST, 0, 0, 0)
    ]
    assert read_count(b"-7") == 0


@pytest.mark.parametrize("text", [b"", b"-1", b"1.5", b"9" * 30, "\u00b2", "\u0663", b" 1"])
def test_only_digits_are_a_whole_number(text: str | bytes) -> None:
    for read in (whole, moment):
        with pytest.raises(Unreadable):
            read(text)


def test_fields_have_the_types_that_their_class_declares() -> None:
    sound = {"attempt": 1, "outcome": "failed", "at": 7}
    assert typed(Attempt, sound) == Attempt(1, "failed", 7)
    odd = [{"at": "7"}, {"attempt": True}, {"error": None}, {"at": LARGEST + 1}, {"tomorrow": 1}, {"run_ms": 1.5}]
    for given in [*({**sound, **each} for each in odd), {"at": 7}, [], None]:
        with pytest.raises(Unreadable), noticing() as reasons:
            typed(Attempt, given)
        assert len(reasons) == 1
